/** Sends traces of queued jobs to an OpenTelemetry collector. */
import type { Telemetry } from 'bullmq';
import type { Log } from '../logging/log.ts';
import { version } from '../version.ts';
import {
  agentOptions,
  COLLECTOR_TIMEOUT_MS,
  findCollector,
} from './collector.ts';

/**
 * The telemetry of every queue and worker. A job carries its caller's trace context to
 * the worker that takes the job.
 */
type Tracing = AsyncDisposable & { readonly telemetry: Telemetry };

/**
 * Starts tracing.
 * @param ambient the environment's `OTEL_…` variables; the collector's clients read other
 *   variables (sampling, limits) themselves
 * @returns undefined if no collector is configured; the OpenTelemetry modules are then
 *   not loaded
 */
export async function openTracing(
  ambient: Readonly<Record<string, string>>,
  log: Log,
): Promise<Tracing | undefined> {
  const collector = findCollector('traces', ambient, log);
  if (collector === undefined) return undefined;
  const { url, headers } = collector;
  log.info(
    { collector: new URL(url).host },
    'Traces are sent to OpenTelemetry',
  );
  const [
    { BullMQOtel },
    { OTLPTraceExporter },
    { resourceFromAttributes },
    sdk,
    api,
  ] = await Promise.all([
    import('bullmq-otel'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('@opentelemetry/resources'),
    import('@opentelemetry/sdk-trace-node'),
    import('@opentelemetry/api'),
  ]);
  const exporter = new OTLPTraceExporter({
    url,
    headers,
    ...agentOptions(collector),
    timeoutMillis: COLLECTOR_TIMEOUT_MS,
  });
  const resource = resourceFromAttributes(collector.resource);
  const processor = new sdk.BatchSpanProcessor(exporter, {
    exportTimeoutMillis: COLLECTOR_TIMEOUT_MS,
  });
  const provider = new sdk.NodeTracerProvider({
    resource,
    spanProcessors: [processor],
  });
  provider.register();
  return {
    telemetry: new BullMQOtel({
      tracerName: 'ledger-mirror',
      version: version(),
    }),
    [Symbol.asyncDispose]: async () => {
      await provider
        .shutdown()
        .catch((error: unknown) =>
          log.debug({ err: error }, 'Last traces were lost'),
        );
      api.trace.disable();
      api.context.disable();
      api.propagation.disable();
    },
  };
}
