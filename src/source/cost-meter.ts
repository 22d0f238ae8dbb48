/** Counts what each run costs the source: requests, bytes and waiting time. */
import { AsyncLocalStorage } from 'node:async_hooks';
import type {
  RequestReport,
  RunMeter,
  SourceCost,
  SourceObserver,
  WaitReport,
} from './ports.ts';

const NO_COST = {
  lists: 0,
  exports: 0,
  retries: 0,
  failures: 0,
  bytes: 0,
  waitedMs: 0,
};

/** Adds up the requests, bytes and waiting time of some work. */
export class CostTally implements SourceObserver {
  #cost = { ...NO_COST };

  onRequest({ route, status, errorCode, attempt, bytes }: RequestReport): void {
    // A request for a statement reads neither a list nor an export, so only the metrics
    // count it.
    if (route !== 'proof')
      this.#cost[route === 'export' ? 'exports' : 'lists'] += 1;
    if (attempt > 1) this.#cost.retries += 1;
    const isGood = status === 200 || status === 206;
    // Most sources serve no statements, so a response that says so is not a failure.
    const isFailure = !isGood || errorCode !== undefined;
    if (isFailure && route !== 'proof') this.#cost.failures += 1;
    this.#cost.bytes += bytes;
  }

  onWait({ waitMs }: WaitReport): void {
    this.#cost.waitedMs += waitMs;
  }

  /**
   * Returns the counts and resets them.
   * @returns the counts since the last call; undefined if nothing was counted
   */
  take(): SourceCost | undefined {
    const { lists, exports, ...cost } = this.#cost;
    if (lists + exports + cost.waitedMs === 0) return undefined;
    this.#cost = { ...NO_COST };
    return {
      requests: { lists, exports },
      ...cost,
      waitedMs: Math.round(cost.waitedMs),
    };
  }
}

/**
 * Attributes requests to runs. Jobs share one client, so a request is attributed to the
 * run in whose async context it was sent.
 */
export class CostMeter implements SourceObserver, RunMeter {
  readonly #next: SourceObserver;
  readonly #runs = new AsyncLocalStorage<string>();
  readonly #tallies = new Map<string, CostTally>();

  /** @param next also receives every report, for metrics */
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
    const taken: [string, SourceCost][] = [];
    for (const [runId, tally] of this.#tallies) {
      const cost = tally.take();
      if (cost !== undefined) taken.push([runId, cost]);
    }
    this.#tallies.clear();
    return taken;
  }

  #tally(): CostTally | undefined {
    const runId = this.#runs.getStore();
    if (runId === undefined) return undefined;
    const tally = this.#tallies.get(runId) ?? new CostTally();
    this.#tallies.set(runId, tally);
    return tally;
  }
}
