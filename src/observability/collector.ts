/**
 * Finds the collector configured by OpenTelemetry's environment variables, and the
 * service name under which this process reports to it.
 */
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
  /** The HTTP agents that connect through a proxy; undefined if there is no proxy. */
  readonly agents: ProxiedAgents | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** The attributes that identify this process in its reports. */
  readonly resource: Readonly<Record<string, string>>;
}

/**
 * How long to wait for the collector. If it is unreachable, that must not delay the end
 * of a command.
 */
export const COLLECTOR_TIMEOUT_MS = 5_000;

/**
 * Finds the collector for traces or for metrics.
 * @param ambient the environment's `OTEL_…` variables
 * @returns undefined if no collector is configured, or this signal is disabled
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
      'OpenTelemetry is off: OTEL_EXPORTER_OTLP_ENDPOINT is not a URL',
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

/**
 * Returns the agent options for a collector's client. They are empty if there is no
 * proxy, and the client then connects directly.
 */
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
 * Reads headers in OpenTelemetry's format, `name=value,name=value` with percent-encoded
 * values. This is a query string with different separators, so it is parsed as one.
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
