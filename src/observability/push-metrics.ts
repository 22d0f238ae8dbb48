/**
 * Metrics of a process that ends before anybody scrapes it: `nightly` started by cron, an
 * orchestrator or a Kubernetes Job. They are sent to an OpenTelemetry collector at its end.
 */
import { errorLine } from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import { findCollector } from './collector.ts';
import type { MetricsRegistry } from './metrics.ts';

const PROTOCOL = 'http/protobuf';

/** Sends what was counted until now. Never fails: a lost push is a line in the log. */
export type PushMetrics = (registry: MetricsRegistry) => Promise<void>;

/**
 * @param ambient the environment's `OTEL_…`
 * @returns undefined if no collector is named, or if it wants another protocol
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
        'The collector did not take the metrics of this process',
      );
    }
  };
}
