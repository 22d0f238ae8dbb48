/** Prometheus metrics of what work goes through: queues, this process's workers, stores. */
import type { Probe } from '../../api/http/ports.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import type { Log } from '../../core/log.ts';
import { within } from '../../core/waiting.ts';
import { QUEUE_NAMES, type QueueName } from '../../queue/backend.ts';
import type { Queues } from '../../queue/queues.ts';
import type { MetricsRegistry } from './metrics-registry.ts';

const STORE_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3];
const PROBE_TIMEOUT_MS = 3_000;
/** However many scrape, the stores are asked this often. */
const ASKED_MAX_AGE_MS = 5_000;

interface QueueMetricsDeps {
  readonly queues: Queues;
  readonly probes: readonly Probe[];
  readonly log: Log;
}

export function addQueueMetrics(registry: MetricsRegistry, { queues, probes, log }: QueueMetricsDeps): void {
  const showWorkers = addWorkerMetrics(registry, queues);
  const jobs = registry.gauge('queue_jobs', 'Jobs that a queue holds', 'queue', 'state');
  const oldest = registry.gauge('queue_oldest_seconds', 'Age of the oldest job that comes next', 'queue');
  const up = registry.gauge('store_up', '1 where the store answered', 'store');
  const seconds = registry.histogram(
    'store_seconds',
    'The smallest question to a store',
    STORE_SECONDS,
    'store',
  );
  const measureStore = async (probe: Probe): Promise<void> => {
    const store = probe.name;
    const startedMs = performance.now();
    const isUp = await isAnswered(store, (signal) => probe.check(signal), log);
    up.set({ store }, isUp ? 1 : 0);
    if (isUp) seconds.observe({ store }, (performance.now() - startedMs) / 1_000);
  };
  const measureQueue = async (queue: QueueName): Promise<void> => {
    const depth = await queues.depth(queue);
    for (const [state, count] of Object.entries(depth.jobs)) jobs.set({ queue, state }, count);
    oldest.set({ queue }, depth.oldestMs / 1_000);
  };
  // A store that is away leaves the values of the others.
  const askStores = sharedLoad(async () => {
    const depths = QUEUE_NAMES.map((queue) => isAnswered(queue, () => measureQueue(queue), log));
    await Promise.all([...probes.map(measureStore), ...depths]);
  }, ASKED_MAX_AGE_MS);
  registry.beforeRead(async () => {
    await askStores();
    showWorkers();
  });
}

function addWorkerMetrics(registry: MetricsRegistry, queues: Queues): () => void {
  const active = registry.gauge('worker_active_jobs', 'Jobs in work in this process', 'queue');
  const quiet = registry.gauge('worker_quiet_seconds', 'Since a job or canary was taken here', 'queue');
  const rebuilds = registry.gauge('worker_rebuilds', 'Workers replaced since the start', 'queue');
  const total = registry.counter('worker_rebuilds', 'Workers replaced because they took nothing', 'queue');
  return () => {
    total.reset();
    for (const { queue, ...pulse } of queues.pulses()) {
      active.set({ queue }, pulse.activeJobs);
      quiet.set({ queue }, pulse.quietMs / 1_000);
      rebuilds.set({ queue }, pulse.rebuilds);
      total.inc({ queue }, pulse.rebuilds);
    }
  };
}

async function isAnswered(
  what: string,
  ask: (signal: AbortSignal) => Promise<unknown>,
  log: Log,
): Promise<boolean> {
  try {
    await within(PROBE_TIMEOUT_MS, ask, () => new Error(`no answer within ${PROBE_TIMEOUT_MS} ms`));
    return true;
  } catch (error) {
    log.debug({ err: error, what }, 'Not measured');
    return false;
  }
}
