/**
 * Prometheus metrics that are read where somebody looks at them: this process, the queues, the stores, and how the last
 * run of each kind ended, so that every process tells the same.
 */
import { statfs } from 'node:fs/promises';
import { collectDefaultMetrics } from 'prom-client';
import type { Probe } from '../../api/http/ports.ts';
import type { Log } from '../../core/log.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import { version } from '../../core/version.ts';
import { within } from '../../core/waiting.ts';
import { QUEUE_NAMES, type QueueName } from '../../queue/backend.ts';
import type { Queues } from '../../queue/queues.ts';
import type { RunFacts } from '../../runs/store/run-facts.ts';
import type { MetricsRegistry } from './metrics-registry.ts';

/** Gauges under names of counters; the same numbers stand in `nodejs_active_handles` and the like, by type. */
const MISNAMED = ['resources', 'handles', 'requests'].map((what) => `nodejs_active_${what}_total`);
const STORE_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3];
const PROBE_TIMEOUT_MS = 3_000;
/** However many scrape, stores and the mirror are asked this often. */
const ASKED_MAX_AGE_MS = 5_000;

interface ReadMetricsDeps {
  readonly queues: Queues;
  /** The stores. */
  readonly probes: readonly Probe[];
  /** Whose disk is watched. */
  readonly dataDir: string;
  readonly readRuns: () => Promise<RunFacts>;
  /** When the schedule's next nightly run is due, in milliseconds since 1970. */
  readonly nextMs: () => number;
  readonly log: Log;
}

export function addReadMetrics(registry: MetricsRegistry, deps: ReadMetricsDeps): void {
  const isAnswered = async ([what, ask]: Question): Promise<boolean> => {
    try {
      await within(PROBE_TIMEOUT_MS, ask, () => new Error(`no answer within ${PROBE_TIMEOUT_MS} ms`));
      return true;
    } catch (error) {
      deps.log.debug({ err: error, what }, 'Not measured');
      return false;
    }
  };
  const showWorkers = addWorkers(registry, deps);
  const measureStore = addStores(registry, isAnswered);
  const asked = [...addQueues(registry, deps), addRuns(registry, deps), addProcess(registry, deps)];
  // What is away leaves the values of the others.
  const askAll = () => Promise.all([...deps.probes.map(measureStore), ...asked.map(isAnswered)]);
  const askNow = sharedLoad(askAll, ASKED_MAX_AGE_MS);
  registry.beforeRead(async () => {
    await askNow();
    showWorkers();
  });
}

/** What is asked, for the log, and how. */
type Question = readonly [what: string, ask: (signal: AbortSignal) => Promise<unknown>];

function addStores(registry: MetricsRegistry, isAnswered: (question: Question) => Promise<boolean>) {
  const up = registry.gauge('store_up', '1 where the store answered', 'store');
  const help = 'The smallest question to a store';
  const seconds = registry.histogram('store_seconds', help, STORE_SECONDS, 'store');
  return async (probe: Probe): Promise<void> => {
    const store = probe.name;
    const startedMs = performance.now();
    const isUp = await isAnswered([store, (signal) => probe.check(signal)]);
    up.set({ store }, isUp ? 1 : 0);
    if (isUp) seconds.observe({ store }, (performance.now() - startedMs) / 1_000);
  };
}

function addQueues(registry: MetricsRegistry, { queues }: ReadMetricsDeps): readonly Question[] {
  const held = registry.gauge('queue_jobs', 'Jobs that a queue holds', 'queue', 'state');
  const oldest = registry.gauge('queue_oldest_seconds', 'Age of the oldest job that comes next', 'queue');
  const measure = async (queue: QueueName): Promise<void> => {
    const { jobs, oldestMs } = await queues.depth(queue);
    for (const [state, count] of Object.entries(jobs)) held.set({ queue, state }, count);
    oldest.set({ queue }, oldestMs / 1_000);
  };
  return QUEUE_NAMES.map((queue) => [queue, () => measure(queue)]);
}

function addWorkers(registry: MetricsRegistry, { queues }: ReadMetricsDeps): () => void {
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

function addRuns(registry: MetricsRegistry, { readRuns, nextMs }: ReadMetricsDeps): Question {
  const gauge = (name: string, help: string) => registry.gauge(name, help, 'kind');
  const lastSeconds = gauge('run_last_duration_seconds', 'How long the last run took');
  const lastComplete = gauge('last_success_timestamp_seconds', 'When a run last ended complete, since 1970');
  const next = gauge('next_scheduled_timestamp_seconds', 'When the next run is scheduled, since 1970');
  const knownGaps = registry.gauge('known_gaps', 'Gaps of the lists that the source itself has');
  const measure = async (): Promise<void> => {
    next.set({ kind: 'nightly' }, nextMs() / 1_000);
    const { kinds, gaps } = await readRuns();
    knownGaps.set(gaps);
    for (const { kind, durationSeconds, completeAtSeconds } of kinds) {
      if (durationSeconds !== null) lastSeconds.set({ kind }, durationSeconds);
      if (completeAtSeconds !== null) lastComplete.set({ kind }, completeAtSeconds);
    }
  };
  return ['runs', measure];
}

function addProcess(registry: MetricsRegistry, { dataDir }: ReadMetricsDeps): Question {
  collectDefaultMetrics({ register: registry });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  registry
    .gauge('build_info', '1, with the versions as labels', 'version', 'node')
    .set({ version: version(), node: process.versions.node }, 1);
  const free = registry.gauge('data_dir_free_bytes', 'Free space where DATA_DIR lies');
  const measure = async (): Promise<void> => {
    // No folder, no number: the process makes it where it needs one.
    free.remove();
    const { bavail, bsize } = await statfs(dataDir, { bigint: true });
    free.set(Number(bavail * bsize));
  };
  return ['disk', measure];
}
