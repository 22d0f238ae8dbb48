/** Prometheus metrics of what work goes through: queues, this process's workers, stores. */
import type { Registry } from 'prom-client';
import type { Probe } from '../api/http/ports.ts';
import { sharedLoad } from '../core/shared-load.ts';
import type { Log } from '../core/log.ts';
import { within } from '../core/within.ts';
import { QUEUE_NAMES, type Queues } from '../queue/queues.ts';
import type { MetricsSource } from './meters.ts';
import { PrefixedRegistry } from './prefixed-registry.ts';

const STORE_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3];
const PROBE_TIMEOUT_MS = 3_000;
/** However many scrape, the stores are asked this often. */
const ASKED_MAX_AGE_MS = 5_000;

interface QueueMetricsDeps {
  readonly queues: Queues;
  readonly probes: readonly Probe[];
  readonly log: Log;
}

export class QueueMetrics implements MetricsSource {
  readonly #deps: QueueMetricsDeps;
  readonly #registry = new PrefixedRegistry();
  readonly #jobs = this.#registry.gauge('queue_jobs', 'Jobs that a queue holds', 'queue', 'state');
  readonly #oldest = this.#registry.gauge(
    'queue_oldest_seconds',
    'Age of the oldest job that comes next',
    'queue',
  );
  readonly #active = this.#registry.gauge('worker_active_jobs', 'Jobs in work in this process', 'queue');
  readonly #quiet = this.#registry.gauge(
    'worker_quiet_seconds',
    'Since a job or canary was taken here',
    'queue',
  );
  readonly #rebuilds = this.#registry.gauge('worker_rebuilds', 'Workers replaced since the start', 'queue');
  readonly #rebuildsTotal = this.#registry.counter(
    'worker_rebuilds',
    'Workers replaced because they took nothing',
    'queue',
  );
  readonly #up = this.#registry.gauge('store_up', '1 where the store answered', 'store');
  readonly #seconds = this.#registry.histogram(
    'store_seconds',
    'The smallest question to a store',
    STORE_SECONDS,
    'store',
  );
  readonly #ask = sharedLoad(() => this.#askStores(), ASKED_MAX_AGE_MS);

  constructor(deps: QueueMetricsDeps) {
    this.#deps = deps;
  }

  async collect(): Promise<Registry> {
    await this.#ask();
    this.#rebuildsTotal.reset();
    for (const { queue, activeJobs, quietMs, rebuilds } of this.#deps.queues.pulses()) {
      this.#active.set({ queue }, activeJobs);
      this.#quiet.set({ queue }, quietMs / 1_000);
      this.#rebuilds.set({ queue }, rebuilds);
      this.#rebuildsTotal.inc({ queue }, rebuilds);
    }
    return this.#registry;
  }

  /** A store that is away leaves the values of the others. */
  async #askStores(): Promise<void> {
    const depths = QUEUE_NAMES.map((queue) => this.#measureQueue(queue));
    await Promise.all([...this.#deps.probes.map((probe) => this.#measureStore(probe)), ...depths]);
  }

  async #measureStore(probe: Probe): Promise<void> {
    const store = probe.name;
    const startedMs = performance.now();
    const isUp = await this.#tried(store, (signal) => probe.check(signal));
    this.#up.set({ store }, isUp ? 1 : 0);
    if (isUp) this.#seconds.observe({ store }, (performance.now() - startedMs) / 1_000);
  }

  async #measureQueue(queue: (typeof QUEUE_NAMES)[number]): Promise<void> {
    await this.#tried(queue, async () => {
      const { jobs, oldestMs } = await this.#deps.queues.depth(queue);
      for (const [state, count] of Object.entries(jobs)) this.#jobs.set({ queue, state }, count);
      this.#oldest.set({ queue }, oldestMs / 1_000);
    });
  }

  async #tried(what: string, work: (signal: AbortSignal) => Promise<unknown>): Promise<boolean> {
    try {
      await within(PROBE_TIMEOUT_MS, work, () => new Error(`no answer within ${PROBE_TIMEOUT_MS} ms`));
      return true;
    } catch (error) {
      this.#deps.log.debug({ err: error, what }, 'Not measured');
      return false;
    }
  }
}
