/** Where OpenTelemetry's environment names a collector, and as whom this process reports. */
import type { Agent as HttpAgent } from 'node:http';
import type { Log } from '../logging/log.ts';
import {
  openProxiedAgents,
  type ProxiedAgents,
} from '../network/proxied-agents.ts';
import { version } from '../version.ts';

type Signal = 'traces' | 'metrics';

export interface Collector {
  readonly url: string;
  /** The agents of the proxy on the way, if there is one. */
  readonly agents: ProxiedAgents | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** Names this process beside what it reports. */
  readonly resource: Readonly<Record<string, string>>;
}

/** A collector that is away must not hold up the end of a command. */
export const COLLECTOR_TIMEOUT_MS = 5_000;

/**
 * @param ambient the environment's `OTEL_…`
 * @returns undefined if no collector is named, or what is asked about is switched off
 */
export function findCollector(
  signal: Signal,
  ambient: Readonly<Record<string, string>>,
  log: Log,
): Collector | undefined {
  const name = signal.toUpperCase();
  const general = ambient['OTEL_EXPORTER_OTLP_ENDPOINT'];
  const url =
    ambient[`OTEL_EXPORTER_OTLP_${name}_ENDPOINT`] ??
    general?.replace(/\/*$/, `/v1/${signal}`);
  if (url === undefined || ambient['OTEL_SDK_DISABLED'] === 'true')
    return undefined;
  if (ambient[`OTEL_${name}_EXPORTER`] === 'none') return undefined;
  if (!URL.canParse(url)) {
    log.warn(
      { url },
      'OpenTelemetry is off: OTEL_EXPORTER_OTLP_ENDPOINT is no URL',
    );
    return undefined;
  }
  const given =
    ambient[`OTEL_EXPORTER_OTLP_${name}_HEADERS`] ??
    ambient['OTEL_EXPORTER_OTLP_HEADERS'] ??
    '';
  const resource = {
    'service.name': ambient['OTEL_SERVICE_NAME'] ?? 'ledger-mirror',
    'service.version': version(),
  };
  const agents = openProxiedAgents(new URL(url), ambient);
  return { url, agents, headers: readHeaders(given), resource };
}

/** Chooses the agents of a collector's client. Empty: its own, which go directly. */
export function agentOptions({ agents }: Collector): {
  readonly httpAgentOptions?: (protocol: string) => HttpAgent;
} {
  if (agents === undefined) return {};
  return {
    httpAgentOptions: (protocol) =>
      protocol === 'https:' ? agents.https : agents.http,
  };
}

/**
 * `name=value,name=value`, values percent-encoded, as OpenTelemetry defines it: a query
 * with other separators.
 */
function readHeaders(text: string): Record<string, string> {
  const query = text
    .replaceAll('&', '%26')
    .replaceAll('+', '%2B')
    .replaceAll(',', '&');
  const pairs = [...new URLSearchParams(query)].map(
    ([name, value]) => [name.trim(), value.trim()] as const,
  );
  return Object.fromEntries(
    pairs.filter(([name, value]) => name !== '' && value !== ''),
  );
}
