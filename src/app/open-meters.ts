/** All metrics of this process: scraped, and sent to an OpenTelemetry collector where one is named. */
import type { Config } from '../config/environment.ts';
import type { Log } from '../core/log.ts';
import { Meters, type MetricsSource } from '../worker/meters.ts';
import { openMetricsPush } from '../worker/metrics-push.ts';
import { QueueMetrics } from '../worker/queue-metrics.ts';
import { processMetrics } from '../worker/process-metrics.ts';
import { type ProbedApp, storeProbes } from './serving/store-probes.ts';

/** @returns what makes them when it is first called: a command that ends soon needs none */
export function openMeters(
  app: ProbedApp & { readonly config: Config; readonly log: Log },
  counted: readonly MetricsSource[],
  stack: AsyncDisposableStack,
): () => Meters {
  const { config, log, queues } = app;
  let made: Meters | undefined;
  const meters = (): Meters =>
    (made ??= new Meters([
      processMetrics(config.dataDir),
      ...counted,
      new QueueMetrics({ queues, probes: storeProbes(app), log }),
    ]));
  const push = openMetricsPush(config.ambient, meters, log);
  if (push !== undefined) stack.use(push);
  return meters;
}
