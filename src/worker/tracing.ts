/** Traces of queued jobs to an OpenTelemetry collector. */
import type { Telemetry } from 'bullmq';
import type { Log } from '../core/log.ts';
import { version } from '../core/version.ts';
import { collectorFor, describeService } from './collector.ts';

export interface Tracing extends AsyncDisposable {
  /** For every queue and worker: the context of who adds a job travels with it to who works it. */
  readonly telemetry: Telemetry;
}

/** A collector that is away must not hold up the end of a command. */
const EXPORT_TIMEOUT_MS = 5_000;

/**
 * @param ambient the environment's `OTEL_…`; what else the collector's clients know of it (sampling, limits) they read
 *   themselves
 * @returns undefined where no collector is named: then nothing of this is even loaded
 */
export async function openTracing(
  ambient: Readonly<Record<string, string>>,
  log: Log,
): Promise<Tracing | undefined> {
  const collector = collectorFor('traces', ambient, log);
  if (collector === undefined) return undefined;
  const [{ BullMQOtel }, { OTLPTraceExporter }, { resourceFromAttributes }, sdk, api] = await Promise.all([
    import('bullmq-otel'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('@opentelemetry/resources'),
    import('@opentelemetry/sdk-trace-node'),
    import('@opentelemetry/api'),
  ]);
  const exporter = new OTLPTraceExporter({
    url: collector.url,
    headers: collector.headers,
    timeoutMillis: EXPORT_TIMEOUT_MS,
  });
  const provider = new sdk.NodeTracerProvider({
    resource: resourceFromAttributes(describeService(ambient)),
    spanProcessors: [new sdk.BatchSpanProcessor(exporter, { exportTimeoutMillis: EXPORT_TIMEOUT_MS })],
  });
  provider.register();
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
