/**
 * Tests the outgoing connections that no run depends on: to the receiver of notices and
 * to the OpenTelemetry collector. It does not deliver anything to either.
 */
import type { Config } from '../config/environment.ts';
import type { Log } from '../logging/log.ts';
import { ProxyError } from '../network/tunnel.ts';
import {
  type OutgoingRequest,
  openHttpClient,
} from '../network/http-client.ts';
import { type Collector, findCollector } from '../observability/collector.ts';

/** The result of a test: what the connection leads to, or why it fails. */
export interface Tried {
  readonly isRight: boolean;
  readonly detail: string;
}

/** The tests, keyed by their names in `doctor`. */
export type ReceiverChecks = Readonly<
  Record<string, (signal: AbortSignal) => Promise<Tried>>
>;

/**
 * An empty report in the encoding of each signal: JSON for traces, protobuf for metrics,
 * in which an empty message has no bytes.
 */
const EMPTY_REPORT = {
  traces: {
    headers: { 'content-type': 'application/json' },
    body: '{"resourceSpans":[]}',
  },
  metrics: { headers: { 'content-type': 'application/x-protobuf' }, body: '' },
} as const;

/** Lists the tests of the configured connections. */
export function receiverChecksOf(config: Config, log: Log): ReceiverChecks {
  const { notifyUrl, ambient } = config;
  const checks: Record<string, (signal: AbortSignal) => Promise<Tried>> = {};
  if (notifyUrl !== undefined)
    checks['notices'] = (signal) => tryNotices(notifyUrl, config, signal);
  for (const name of ['traces', 'metrics'] as const) {
    const collector = findCollector(name, ambient, log);
    if (collector !== undefined)
      checks[name] = (signal) => tryCollector(collector, name, config, signal);
  }
  return checks;
}

/**
 * Accepts any response, because a test request is not a notice, and each receiver refuses
 * it in its own way.
 */
async function tryNotices(
  notifyUrl: URL,
  config: Config,
  signal: AbortSignal,
): Promise<Tried> {
  const url = new URL(notifyUrl);
  url.username = '';
  url.password = '';
  const { status, way } = await statusOf(
    url,
    { method: 'HEAD', signal },
    config,
  );
  return {
    isRight: true,
    detail: `${url.host} answers${way} (status ${status}); no notice was sent, \`ledger-mirror notify\` sends one`,
  };
}

async function tryCollector(
  { url: text, headers }: Collector,
  name: 'traces' | 'metrics',
  config: Config,
  signal: AbortSignal,
): Promise<Tried> {
  const url = new URL(text);
  const report = EMPTY_REPORT[name];
  const request = {
    method: 'POST',
    headers: { ...headers, ...report.headers },
    body: report.body,
    signal,
  } as const;
  const advice =
    'check OTEL_EXPORTER_OTLP_ENDPOINT: OTLP is sent over HTTP (port 4318 as a rule), ' +
    'not by gRPC (4317)';
  try {
    const { status, way } = await statusOf(url, request, config);
    return status >= 200 && status < 300
      ? { isRight: true, detail: `${url.host} takes them${way}` }
      : {
          isRight: false,
          detail: `${url.host} answers${way} with status ${status}; ${advice}`,
        };
  } catch (error) {
    if (error instanceof ProxyError || signal.aborted) throw error;
    const state = error instanceof Error ? error.message : String(error);
    return {
      isRight: false,
      detail: `${url.host} cannot be reached (${state}); ${advice}`,
    };
  }
}

/**
 * Returns the status of the service's response.
 * @throws ProxyError if a proxy responded in place of the service
 */
async function statusOf(
  url: URL,
  request: OutgoingRequest,
  { ambient }: Config,
): Promise<{ readonly status: number; readonly way: string }> {
  await using client = openHttpClient(ambient);
  const { statusCode, proxy, body } = await client.request(url, request);
  await body.dump();
  const isOfProxy = [407, 502, 503, 504].includes(statusCode);
  if (proxy !== undefined && isOfProxy) throw new ProxyError(proxy, statusCode);
  const way = proxy === undefined ? '' : ` through ${proxy}`;
  return { status: statusCode, way };
}
