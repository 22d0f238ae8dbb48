/** Traces of queued jobs to an OpenTelemetry collector, where OTEL_EXPORTER_OTLP_ENDPOINT names one. */
import type { Telemetry } from 'bullmq';
import type { Log } from '../core/log.ts';
import { version } from '../core/version.ts';

export interface Tracing extends AsyncDisposable {
  /** For every queue and worker: the context of who adds a job travels with it to who works it. */
  readonly telemetry: Telemetry;
}

/** A collector that is away must not hold up the end of a command. */
const EXPORT_TIMEOUT_MS = 5_000;
const TRACES_PATH = 'v1/traces';

/**
 * @param ambient the environment's `OTEL_…`; only the endpoint, headers and service name are read here,
 *   what else the collector's clients know (sampling, limits) they read themselves
 * @returns undefined where no endpoint is set: then nothing of this is even loaded
 */
export async function openTracing(
  ambient: Readonly<Record<string, string>>,
  log: Log,
): Promise<Tracing | undefined> {
  const endpoint =
    ambient['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] ?? withPath(ambient['OTEL_EXPORTER_OTLP_ENDPOINT']);
  if (endpoint === undefined || ambient['OTEL_SDK_DISABLED'] === 'true') return undefined;
  if (!URL.canParse(endpoint)) {
    log.warn({ endpoint }, 'Traces are off: OTEL_EXPORTER_OTLP_ENDPOINT is no URL');
    return undefined;
  }
  const [{ BullMQOtel }, { OTLPTraceExporter }, { resourceFromAttributes }, sdk, api] = await Promise.all([
    import('bullmq-otel'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('@opentelemetry/resources'),
    import('@opentelemetry/sdk-trace-node'),
    import('@opentelemetry/api'),
  ]);
  const exporter = new OTLPTraceExporter({
    url: endpoint,
    headers: readHeaders(ambient['OTEL_EXPORTER_OTLP_HEADERS']),
    timeoutMillis: EXPORT_TIMEOUT_MS,
  });
  const provider = new sdk.NodeTracerProvider({
    resource: resourceFromAttributes({
      'service.name': ambient['OTEL_SERVICE_NAME'] ?? 'ledger-mirror',
      'service.version': version(),
    }),
    spanProcessors: [new sdk.BatchSpanProcessor(exporter, { exportTimeoutMillis: EXPORT_TIMEOUT_MS })],
  });
  provider.register();
  log.info({ endpoint: new URL(endpoint).host }, 'Traces are sent');
  return {
    telemetry: new BullMQOtel({ tracerName: 'ledger-mirror', version: version() }),
    [Symbol.asyncDispose]: async () => {
      await provider.shutdown().catch((error: unknown) => log.debug({ err: error }, 'Last traces were lost'));
      api.trace.disable();
      api.context.disable();
      api.propagation.disable();
    },
  };
}

function withPath(endpoint: string | undefined): string | undefined {
  return endpoint === undefined ? undefined : `${endpoint.replace(/\/+$/, '')}/${TRACES_PATH}`;
}

/** `name=value,name=value`, values percent-encoded, as OpenTelemetry defines it. */
function readHeaders(text: string | undefined): Record<string, string> {
  const pairs = (text ?? '').split(',').filter((pair) => pair.includes('='));
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      return [pair.slice(0, at).trim(), decoded(pair.slice(at + 1).trim())];
    }),
  );
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
