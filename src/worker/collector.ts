/** Where an OpenTelemetry collector listens, as its specification names the settings. */
import type { Log } from '../core/log.ts';
import { version } from '../core/version.ts';

export interface Collector {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * @param ambient the environment's `OTEL_…`
 * @returns undefined where no collector is named, or this signal is switched off
 */
export function collectorFor(
  signal: 'traces' | 'metrics',
  ambient: Readonly<Record<string, string>>,
  log: Log,
): Collector | undefined {
  const name = signal.toUpperCase();
  const general = ambient['OTEL_EXPORTER_OTLP_ENDPOINT'];
  const url =
    ambient[`OTEL_EXPORTER_OTLP_${name}_ENDPOINT`] ??
    (general === undefined ? undefined : `${general.replace(/\/+$/, '')}/v1/${signal}`);
  if (url === undefined || ambient['OTEL_SDK_DISABLED'] === 'true') return undefined;
  if (ambient[`OTEL_${name}_EXPORTER`] === 'none') return undefined;
  if (!URL.canParse(url)) {
    log.warn({ signal, url }, 'OpenTelemetry is off: OTEL_EXPORTER_OTLP_ENDPOINT is no URL');
    return undefined;
  }
  log.info({ signal, collector: new URL(url).host }, 'Sent to OpenTelemetry');
  const headers =
    ambient[`OTEL_EXPORTER_OTLP_${name}_HEADERS`] ?? ambient['OTEL_EXPORTER_OTLP_HEADERS'] ?? '';
  return { url, headers: readHeaders(headers) };
}

/** `service.name` and `service.version`. */
export function describeService(ambient: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return { 'service.name': ambient['OTEL_SERVICE_NAME'] ?? 'ledger-mirror', 'service.version': version() };
}

/** `name=value,name=value`, values percent-encoded, as OpenTelemetry defines it: a query with other separators. */
function readHeaders(text: string): Record<string, string> {
  const query = text.replaceAll('&', '%26').replaceAll('+', '%2B').replaceAll(',', '&');
  const pairs = [...new URLSearchParams(query)].map(([name, value]) => [name.trim(), value.trim()] as const);
  return Object.fromEntries(pairs.filter(([name, value]) => name !== '' && value !== ''));
}
