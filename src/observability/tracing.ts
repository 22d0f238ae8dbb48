/** Traces of queued jobs to an OpenTelemetry collector. */
import type { Telemetry } from 'bullmq';
import type { Log } from '../logging/log.ts';
import { version } from '../version.ts';

/**
 * For every queue and worker: the context of who adds a job travels with it to who works
 * it.
 */
type Tracing = AsyncDisposable & { readonly telemetry: Telemetry };

/** A collector that is away must not hold up the end of a command. */
const EXPORT_TIMEOUT_MS = 5_000;

/**
 * @param ambient the environment's `OTEL_…`; what else the collector's clients know of it
 *   (sampling, limits) they read themselves
 * @returns undefined where no collector is named: then nothing of this is even loaded
 */
export async function openTracing(
  ambient: Readonly<Record<string, string>>,
  log: Log,
): Promise<Tracing | undefined> {
  const url = findCollector(ambient, log);
  if (url === undefined) return undefined;
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
  const given =
    ambient['OTEL_EXPORTER_OTLP_TRACES_HEADERS'] ??
    ambient['OTEL_EXPORTER_OTLP_HEADERS'] ??
    '';
  const headers = readHeaders(given);
  const exporter = new OTLPTraceExporter({
    url,
    headers,
    timeoutMillis: EXPORT_TIMEOUT_MS,
  });
  const name = ambient['OTEL_SERVICE_NAME'] ?? 'ledger-mirror';
  const resource = resourceFromAttributes({
    'service.name': name,
    'service.version': version(),
  });
  const processor = new sdk.BatchSpanProcessor(exporter, {
    exportTimeoutMillis: EXPORT_TIMEOUT_MS,
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

/** @returns undefined where none is named, or traces are switched off */
function findCollector(
  ambient: Readonly<Record<string, string>>,
  log: Log,
): string | undefined {
  const general = ambient['OTEL_EXPORTER_OTLP_ENDPOINT'];
  const url =
    ambient['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] ??
    general?.replace(/\/*$/, '/v1/traces');
  if (url === undefined || ambient['OTEL_SDK_DISABLED'] === 'true')
    return undefined;
  if (ambient['OTEL_TRACES_EXPORTER'] === 'none') return undefined;
  if (URL.canParse(url)) {
    log.info(
      { collector: new URL(url).host },
      'Traces are sent to OpenTelemetry',
    );
    return url;
  }
  log.warn(
    { url },
    'OpenTelemetry is off: OTEL_EXPORTER_OTLP_ENDPOINT is no URL',
  );
  return undefined;
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
