/**
 * Who looks on while the source is asked: what each job costs it, and how fast it
 * answers.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type {
  RequestReport,
  RunMeter,
  SourceCost,
  SourceObserver,
  WaitReport,
} from './ports.ts';

const NOTHING = {
  lists: 0,
  exports: 0,
  retries: 0,
  failures: 0,
  bytes: 0,
  waitedMs: 0,
};

/** Counts up while its work runs. */
export class CostTally {
  #cost = { ...NOTHING };

  onRequest({ route, status, errorCode, attempt, bytes }: RequestReport): void {
    this.#cost[route === 'export' ? 'exports' : 'lists'] += 1;
    if (attempt > 1) this.#cost.retries += 1;
    if (status !== 200 || errorCode !== undefined) this.#cost.failures += 1;
    this.#cost.bytes += bytes;
  }

  onWait({ waitMs }: WaitReport): void {
    this.#cost.waitedMs += waitMs;
  }

  /** What was counted since the last call; undefined where nothing was. */
  take(): SourceCost | undefined {
    const { lists, exports, ...cost } = this.#cost;
    if (lists + exports + cost.waitedMs === 0) return undefined;
    this.#cost = { ...NOTHING };
    return {
      requests: { lists, exports },
      ...cost,
      waitedMs: Math.round(cost.waitedMs),
    };
  }
}

/**
 * Jobs share one client, and a request belongs to the run in whose asynchronous context
 * it was sent.
 */
export class CostMeter implements SourceObserver, RunMeter {
  readonly #next: SourceObserver;
  readonly #runs = new AsyncLocalStorage<string>();
  readonly #tallies = new Map<string, CostTally>();

  /** @param next is told as well, for metrics */
  constructor(next: SourceObserver) {
    this.#next = next;
  }

  during<Result>(runId: string, work: () => Promise<Result>): Promise<Result> {
    return this.#runs.run(runId, work);
  }

  onRequest(report: RequestReport): void {
    this.#tally()?.onRequest(report);
    this.#next.onRequest(report);
  }

  onWait(report: WaitReport): void {
    this.#tally()?.onWait(report);
    this.#next.onWait(report);
  }

  take(): readonly (readonly [runId: string, cost: SourceCost])[] {
    const taken = [...this.#tallies].map(
      ([runId, tally]) => [runId, tally.take()] as const,
    );
    this.#tallies.clear();
    return taken.flatMap(([runId, cost]) =>
      cost === undefined ? [] : [[runId, cost] as const],
    );
  }

  #tally(): CostTally | undefined {
    const runId = this.#runs.getStore();
    if (runId === undefined) return undefined;
    const tally = this.#tallies.get(runId) ?? new CostTally();
    this.#tallies.set(runId, tally);
    return tally;
  }
}

/** Answers that the median is taken over. */
const LATENCIES_KEPT = 64;

/**
 * Of the last good list answers, to tell a passing delay from an overloaded source.
 * Rising far above the median: leave the source alone.
 */
export interface ListLatency {
  readonly lastMs: number;
  readonly medianMs: number;
}

/** @param next is told of everything, for metrics and costs */
export function observeLatency(next?: SourceObserver): SourceObserver & {
  /** Undefined before the first good answer. */
  listLatency(): ListLatency | undefined;
} {
  const latencies: number[] = [];
  return {
    onRequest(report) {
      const isGood = report.status === 200 && report.errorCode === undefined;
      if (isGood && report.route !== 'export')
        latencies.push(report.durationMs);
      if (latencies.length > LATENCIES_KEPT) latencies.shift();
      next?.onRequest(report);
    },
    onWait: (report) => next?.onWait(report),
    listLatency() {
      const medianMs = latencies.toSorted((a, b) => a - b)[
        Math.floor(latencies.length / 2)
      ];
      const lastMs = latencies.at(-1);
      return lastMs === undefined || medianMs === undefined
        ? undefined
        : { lastMs, medianMs };
    },
  };
}
