/**
 * Prometheus metrics of this process. Counters cover the work of this process only.
 * Shared values (the queues, the stores, the outcome of the last run of each kind) are
 * read on each scrape, so that every process reports the same ones. Names are stable and
 * documented in docs/metrics.md; label values come from small fixed sets.
 */
import { statfs } from 'node:fs/promises';
import {
  collectDefaultMetrics,
  Counter,
  Gauge,
  Histogram,
  Registry,
} from 'prom-client';
import type { Log } from '../logging/log.ts';
import { sharedLoad } from '../concurrency/shared-load.ts';
import { VERDICTS } from '../errors/verdict.ts';
import { version } from '../version.ts';
import { withTimeout } from '../concurrency/timeouts.ts';
import { QUEUE_NAMES, type QueueName } from '../queue/backend.ts';
import type { JobReport } from '../queue/queue-worker.ts';
import type { Queues } from '../queue/queues.ts';
import { type ProgressLine, RateMeter } from '../runs/progress.ts';
import { RUN_KINDS } from '../runs/run-schema.ts';
import type { RunFacts } from '../runs/store/run-facts.ts';
import type { EndedRun } from '../runs/store/run-store.ts';
import type { NightFacts } from '../status/night-facts.ts';
import type {
  RequestReport,
  SourceObserver,
  WaitReport,
} from '../source/ports.ts';

const PREFIX = 'ledger_mirror_';
const ASKED = 'Requests to the source';
const REQUEST_SECONDS = [
  0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300,
];
const JOB_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 28_800];
const RUN_SECONDS = [
  1, 5, 15, 60, 300, 900, 3_600, 7_200, 14_400, 28_800, 57_600,
];
const STORE_SECONDS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3,
];
/** How long after its last progress report a task is considered finished. */
const TASK_KEPT_MS = 60_000;
const PROBE_TIMEOUT_MS = 3_000;
/**
 * How long readings of the stores and the mirror are reused, regardless of the number of
 * scrapers.
 */
const ASKED_MAX_AGE_MS = 5_000;
/**
 * Default metrics to remove: gauges whose names look like counters.
 * `nodejs_active_handles` and its siblings have the same numbers by type.
 */
const MISNAMED = ['resources', 'handles', 'requests'].map(
  (what) => `nodejs_active_${what}_total`,
);

/** A registry that can refresh its metrics each time they are read. */
export class MetricsRegistry extends Registry {
  readonly #updates: (() => void | Promise<unknown>)[] = [];

  /** Adds a counter; `_total` is appended to its name. */
  counter(name: string, help: string, ...labelNames: string[]): Counter {
    return new Counter({
      name: `${PREFIX}${name}_total`,
      help,
      labelNames,
      registers: [this],
    });
  }

  gauge(name: string, help: string, ...labelNames: string[]): Gauge {
    return new Gauge({
      name: `${PREFIX}${name}`,
      help,
      labelNames,
      registers: [this],
    });
  }

  histogram(
    name: string,
    help: string,
    buckets: number[],
    ...labelNames: string[]
  ): Histogram {
    return new Histogram({
      name: `${PREFIX}${name}`,
      help,
      buckets,
      labelNames,
      registers: [this],
    });
  }

  /**
   * Registers a function that runs before each read.
   * @param update refreshes values that are only known at that moment; must not fail
   */
  beforeRead(update: () => void | Promise<unknown>): void {
    this.#updates.push(update);
  }

  override async metrics(): Promise<string> {
    await this.#update();
    return super.metrics();
  }

  override async getMetricsAsJSON(): ReturnType<Registry['getMetricsAsJSON']> {
    await this.#update();
    return super.getMetricsAsJSON();
  }

  async #update(): Promise<void> {
    await Promise.all(this.#updates.map(async (update) => update()));
  }
}

/** Counts the requests to the source, and the outcomes of jobs and runs. */
export class WorkMetrics extends MetricsRegistry implements SourceObserver {
  readonly #requests = this.counter(
    'source_requests',
    ASKED,
    'route',
    'status',
  );
  readonly #retries = this.counter(
    'source_retries',
    'Requests that were sent again',
    'route',
  );
  readonly #bytes = this.counter(
    'source_received_bytes',
    'Bodies of the source, over the wire',
    'route',
  );
  readonly #waits = this.counter(
    'source_waits',
    'Waits before a request to the source',
    'route',
    'reason',
  );
  readonly #waited = this.counter(
    'source_wait_seconds',
    'The same, in seconds',
    'route',
    'reason',
  );
  readonly #requestSeconds = this.histogram(
    'source_request_seconds',
    ASKED,
    REQUEST_SECONDS,
    'route',
  );
  readonly #jobs = this.counter(
    'jobs',
    'Deliveries of jobs that were worked',
    'queue',
    'outcome',
  );
  readonly #jobSeconds = this.histogram(
    'job_seconds',
    'Deliveries of jobs',
    JOB_SECONDS,
    'queue',
  );
  readonly #runs = this.counter(
    'runs',
    'Runs that ended in this process',
    'kind',
    'verdict',
  );
  readonly #runSeconds = this.histogram(
    'run_duration_seconds',
    'Runs, waiting included',
    RUN_SECONDS,
    'kind',
  );
  readonly #notifyFailures = this.counter(
    'notify_failures',
    'Reports that NOTIFY_URL did not take',
  );
  readonly #tasks = new Map<
    string,
    { line: ProgressLine; rate: RateMeter; atMs: number }
  >();

  constructor() {
    super();
    // Initialize counters to 0. If a counter first appears with its first event, a rate
    // does not show that event.
    for (const route of ['parties', 'checkpoints', 'export', 'proof']) {
      for (const counter of [this.#retries, this.#bytes])
        counter.inc({ route }, 0);
      for (const reason of ['rate', 'ban', 'retry'])
        for (const counter of [this.#waits, this.#waited])
          counter.inc({ route, reason }, 0);
    }
    for (const queue of QUEUE_NAMES)
      for (const outcome of ['done', 'failed'])
        this.#jobs.inc({ queue, outcome }, 0);
    for (const kind of RUN_KINDS)
      for (const verdict of VERDICTS) this.#runs.inc({ kind, verdict }, 0);
    this.#showTasks();
  }

  onRequest({
    route,
    status,
    bytes,
    durationMs,
    attempt,
  }: RequestReport): void {
    this.#requests.inc({ route, status: status ?? 'none' });
    this.#bytes.inc({ route }, bytes);
    if (attempt > 1) this.#retries.inc({ route });
    this.#requestSeconds.observe({ route }, durationMs / 1_000);
  }

  onWait({ route, reason, waitMs }: WaitReport): void {
    if (waitMs <= 0) return;
    this.#waits.inc({ route, reason });
    this.#waited.inc({ route, reason }, waitMs / 1_000);
  }

  readonly onJob = ({ queue, outcome, durationMs }: JobReport): void => {
    this.#jobs.inc({ queue, outcome });
    this.#jobSeconds.observe({ queue }, durationMs / 1_000);
  };

  readonly onRun = ({ kind, verdict, durationMs }: EndedRun): void => {
    this.#runs.inc({ kind, verdict });
    this.#runSeconds.observe({ kind }, durationMs / 1_000);
  };

  readonly onNotifyFailure = (): void => this.#notifyFailures.inc();

  readonly onProgress = (lines: readonly ProgressLine[]): void => {
    const atMs = performance.now();
    for (const line of lines) {
      const rate = this.#tasks.get(line.label)?.rate ?? new RateMeter();
      rate.add(BigInt(line.done), atMs);
      this.#tasks.set(line.label, { line, rate, atMs });
    }
  };

  #showTasks(): void {
    const labels = ['task', 'unit'];
    const finished = this.gauge(
      'progress_done',
      'What a task in work has done',
      ...labels,
    );
    const expected = this.gauge(
      'progress_expected',
      'What it has to do, where that is known',
      ...labels,
    );
    const perSecond = this.gauge(
      'progress_per_second',
      'Its present rate',
      ...labels,
    );
    this.beforeRead(() => {
      for (const gauge of [finished, expected, perSecond]) gauge.reset();
      for (const [task, { line, rate, atMs }] of this.#tasks) {
        if (performance.now() - atMs > TASK_KEPT_MS) {
          this.#tasks.delete(task);
          continue;
        }
        const { unit, done, total } = line;
        finished.set({ task, unit }, Number(done));
        if (total !== undefined) expected.set({ task, unit }, Number(total));
        perSecond.set({ task, unit }, rate.perSecond);
      }
    });
  }
}

/** Checks one thing that this process needs to do its work. */
export interface Probe {
  readonly name: string;
  /** Rejects if the check fails. */
  check(signal: AbortSignal): Promise<unknown>;
}

interface ReadMetricsDeps {
  readonly queues: Queues;
  /** Probes of the stores. */
  readonly probes: readonly Probe[];
  /** The folder whose disk space is measured. */
  readonly dataDir: string;
  readonly readRuns: () => Promise<RunFacts>;
  readonly readNights: () => Promise<NightFacts>;
  readonly log: Log;
}

/** Whether `ask` succeeds within the timeout for probes. */
export async function isAnswered(
  ask: (signal: AbortSignal) => Promise<unknown>,
  onFailure: (error: unknown) => void,
): Promise<boolean> {
  try {
    await withTimeout(
      PROBE_TIMEOUT_MS,
      ask,
      () => new Error(`no answer within ${PROBE_TIMEOUT_MS} ms`),
    );
    return true;
  } catch (error) {
    onFailure(error);
    return false;
  }
}

/**
 * Adds the metrics that are read at each scrape. If one of them cannot be read, the
 * rest are still updated.
 */
export function addReadMetrics(
  registry: MetricsRegistry,
  deps: ReadMetricsDeps,
): MetricsRegistry {
  type Ask = (signal: AbortSignal) => Promise<unknown>;
  const isMeasured = ([what, measure]: readonly [what: string, measure: Ask]) =>
    isAnswered(measure, (error) =>
      deps.log.debug({ err: error, what }, 'Not measured'),
    );
  const up = registry.gauge('store_up', '1 if the store answered', 'store');
  const help = 'The smallest question to a store';
  const seconds = registry.histogram(
    'store_seconds',
    help,
    STORE_SECONDS,
    'store',
  );
  const measureStore = async (probe: Probe): Promise<void> => {
    const store = probe.name;
    const startedMs = performance.now();
    const isUp = await isMeasured([store, (signal) => probe.check(signal)]);
    up.set({ store }, Number(isUp));
    if (isUp)
      seconds.observe({ store }, (performance.now() - startedMs) / 1_000);
  };
  /** Functions that read the values, keyed by their names in the log. */
  const measures = {
    ...addQueues(registry, deps),
    runs: addRuns(registry, deps),
    disk: addProcess(registry, deps),
  };
  const askAll = () =>
    Promise.all([
      ...deps.probes.map(measureStore),
      ...Object.entries(measures).map(isMeasured),
    ]);
  registry.beforeRead(sharedLoad(askAll, ASKED_MAX_AGE_MS));
  return registry;
}

function addQueues(registry: MetricsRegistry, { queues }: ReadMetricsDeps) {
  const gauge = (name: string, help: string) =>
    registry.gauge(name, help, 'queue');
  const held = registry.gauge(
    'queue_jobs',
    'Jobs that a queue holds',
    'queue',
    'state',
  );
  const oldest = gauge(
    'queue_oldest_seconds',
    'Age of the oldest job that comes next',
  );
  const active = gauge('worker_active_jobs', 'Jobs in work in this process');
  const quiet = gauge(
    'worker_quiet_seconds',
    'Since a job or canary was taken here',
  );
  const rebuilds = gauge('worker_rebuilds', 'Workers replaced since the start');
  const total = registry.counter(
    'worker_rebuilds',
    'Workers replaced because they took nothing',
    'queue',
  );
  registry.beforeRead(() => {
    total.reset();
    for (const { queue, ...pulse } of queues.pulses()) {
      active.set({ queue }, pulse.activeJobs);
      quiet.set({ queue }, pulse.quietMs / 1_000);
      rebuilds.set({ queue }, pulse.rebuilds);
      total.inc({ queue }, pulse.rebuilds);
    }
  });
  const measure = async (queue: QueueName) => {
    const { jobs, oldestMs } = await queues.depth(queue);
    for (const [state, count] of Object.entries(jobs))
      held.set({ queue, state }, count);
    oldest.set({ queue }, oldestMs / 1_000);
  };
  return Object.fromEntries(
    QUEUE_NAMES.map((queue) => [queue, () => measure(queue)]),
  );
}

function addRuns(
  registry: MetricsRegistry,
  { readRuns, readNights }: ReadMetricsDeps,
) {
  const gauge = (name: string, help: string) =>
    registry.gauge(name, help, 'kind');
  const lastSeconds = gauge(
    'run_last_duration_seconds',
    'How long the last run took',
  );
  const lastComplete = gauge(
    'last_success_timestamp_seconds',
    'When a run last ended complete, since 1970',
  );
  const next = gauge(
    'next_scheduled_timestamp_seconds',
    'When the next run is scheduled, since 1970',
  );
  const knownGaps = registry.gauge(
    'known_gaps',
    'Gaps of the lists that the source itself has',
  );
  const missed = registry.gauge(
    'nightly_missed',
    '1 if a scheduled nightly run never began',
  );
  const running = registry.gauge(
    'nightly_running',
    '1 if a nightly run is queued or in work',
  );
  const waiting = registry.gauge(
    'nightly_waiting',
    '1 if it waits for a source that is away',
  );
  const setNights = (nights: NightFacts): void => {
    missed.set(Number(nights.missedAt !== null));
    running.set(Number(nights.running !== null));
    waiting.set(Number((nights.running?.awaitedSource ?? null) !== null));
    // Without a worker there is no next run, so do not report any value.
    next.reset();
    if (nights.nextAt !== null)
      next.set({ kind: 'nightly' }, secondsOf(nights.nextAt));
    if (nights.lastCompleteAt !== null)
      lastComplete.set({ kind: 'nightly' }, secondsOf(nights.lastCompleteAt));
    const { startedAt, finishedAt } = nights.last ?? {};
    if (startedAt && finishedAt)
      lastSeconds.set(
        { kind: 'nightly' },
        secondsOf(finishedAt) - secondsOf(startedAt),
      );
  };
  return async () => {
    const [{ kinds, gaps }, nights] = await Promise.all([
      readRuns(),
      readNights(),
    ]);
    setNights(nights);
    knownGaps.set(gaps);
    for (const { kind, durationSeconds, completeAtSeconds } of kinds) {
      if (durationSeconds !== null) lastSeconds.set({ kind }, durationSeconds);
      if (completeAtSeconds !== null)
        lastComplete.set({ kind }, completeAtSeconds);
    }
  };
}

/** @param at RFC 3339 */
function secondsOf(at: string): number {
  return Date.parse(at) / 1_000;
}

function addProcess(registry: MetricsRegistry, { dataDir }: ReadMetricsDeps) {
  collectDefaultMetrics({ register: registry });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  registry
    .gauge('build_info', '1, with the versions as labels', 'version', 'node')
    .set({ version: version(), node: process.versions.node }, 1);
  const free = registry.gauge(
    'data_dir_free_bytes',
    'Free space where DATA_DIR lies',
  );
  return async () => {
    // The process creates the folder when it first needs it. Until then, the metric has
    // no value.
    free.remove();
    const { bavail, bsize } = await statfs(dataDir, { bigint: true });
    free.set(Number(bavail * bsize));
  };
}
