/** All metrics of this process, and the questions by which each store that it needs is measured. */
import type { Probe } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import type { Log } from '../core/log.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { Warehouse } from '../postgres/database.ts';
import type { Queues } from '../queue/queues.ts';
import type { MetricsRegistry } from '../worker/metrics/metrics-registry.ts';
import { addProcessMetrics } from '../worker/metrics/process-metrics.ts';
import { openMetricsPush } from '../worker/metrics/push-metrics.ts';
import { addQueueMetrics } from '../worker/metrics/queue-metrics.ts';

interface MeasuredApp {
  readonly config: Config;
  readonly log: Log;
  readonly warehouse: Warehouse;
  readonly queues: Queues;
  readonly store: ObjectStore;
}

/**
 * Scraped, and sent to an OpenTelemetry collector where one is named.
 * @returns the registry; a command that ends soon asks for none of it, so the costly part is added at the first call
 */
export function openMetrics(
  app: MeasuredApp,
  registry: MetricsRegistry,
  stack: AsyncDisposableStack,
): () => MetricsRegistry {
  const { config, log, queues } = app;
  let isWhole = false;
  const metrics = (): MetricsRegistry => {
    if (!isWhole) {
      addProcessMetrics(registry, config.dataDir);
      addQueueMetrics(registry, { queues, probes: storeProbes(app), log });
    }
    isWhole = true;
    return registry;
  };
  stack.use(openMetricsPush(config.ambient, metrics, log));
  return metrics;
}

/** Each store asked the smallest question there is: for readiness and for metrics. */
export function storeProbes({ warehouse, queues, store }: MeasuredApp): readonly Probe[] {
  return [
    { name: 'database', check: () => warehouse.pool.query('select 1') },
    { name: 'queues', check: () => queues.counts('export') },
    { name: 'objects', check: (signal) => store.head('probe/readyz', signal) },
  ];
}
