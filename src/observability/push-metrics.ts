/**
 * Pushes the metrics of a process that ends before any scraper reads it, such as
 * `nightly` started by cron, by an orchestrator or as a Kubernetes Job. They are sent to
 * an OpenTelemetry collector when the process ends.
 */
import { errorLine } from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import { findCollector } from './collector.ts';
import type { MetricsRegistry } from './metrics.ts';

const PROTOCOL = 'http/protobuf';

/** Sends the current metrics. Never rejects: a failed push is only logged. */
export type PushMetrics = (registry: MetricsRegistry) => Promise<void>;

/**
 * Prepares the push; the returned function sends the metrics.
 * @param ambient the environment's `OTEL_…` variables
 * @returns undefined if no collector is configured, or if it is configured with an
 *   unsupported protocol
 */
export function openMetricsPush(
  ambient: Readonly<Record<string, string>>,
  log: Log,
): PushMetrics | undefined {
  const startedMs = Date.now();
  const collector = findCollector('metrics', ambient, log);
  if (collector === undefined) return undefined;
  const own = 'OTEL_EXPORTER_OTLP_METRICS_PROTOCOL';
  const general = 'OTEL_EXPORTER_OTLP_PROTOCOL';
  const name = ambient[own] === undefined ? general : own;
  const protocol = ambient[name] ?? PROTOCOL;
  if (protocol !== PROTOCOL) {
    log.warn(
      { protocol },
      `Metrics are not sent: ${name} is ${protocol}; set ${own} to ${PROTOCOL}, ` +
        'or OTEL_METRICS_EXPORTER to none',
    );
    return undefined;
  }
  return async (registry) => {
    try {
      const { sendMetrics, toResourceMetrics } =
        await import('./otlp-metrics.ts');
      const read = await registry.getMetricsAsJSON();
      const metrics = toResourceMetrics(collector, read, startedMs, Date.now());
      await sendMetrics(collector, metrics);
    } catch (error) {
      log.warn(
        { collector: new URL(collector.url).host, reason: errorLine(error) },
        'The collector did not accept the metrics of this process',
      );
    }
  };
}
