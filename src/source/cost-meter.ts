/**
 * Counts what each job costs the source. Jobs share one client, and a request belongs to the job in whose
 * asynchronous context it was sent.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { RequestReport, SourceCost, SourceObserver, WaitReport } from './ports.ts';

/** Counts up while its work runs. */
export class CostTally {
  #lists = 0;
  #exports = 0;
  #retries = 0;
  #failures = 0;
  #bytes = 0;
  #waitedMs = 0;

  onRequest({ route, status, errorCode, attempt, bytes }: RequestReport): void {
    if (route === 'export') this.#exports += 1;
    else this.#lists += 1;
    if (attempt > 1) this.#retries += 1;
    if (status !== 200 || errorCode !== undefined) this.#failures += 1;
    this.#bytes += bytes;
  }

  onWait({ waitMs }: WaitReport): void {
    this.#waitedMs += waitMs;
  }

  /** What was counted since the last call; undefined where nothing was asked. */
  take(): SourceCost | undefined {
    if (this.#lists + this.#exports === 0) return undefined;
    const cost = {
      requests: { lists: this.#lists, exports: this.#exports },
      retries: this.#retries,
      failures: this.#failures,
      bytes: this.#bytes,
      waitedMs: Math.round(this.#waitedMs),
    };
    this.#lists = this.#exports = this.#retries = this.#failures = this.#bytes = this.#waitedMs = 0;
    return cost;
  }
}

export class CostMeter implements SourceObserver {
  readonly #next: SourceObserver;
  readonly #tallies = new AsyncLocalStorage<CostTally>();

  /** @param next is told as well, for metrics */
  constructor(next: SourceObserver) {
    this.#next = next;
  }

  /** Whatever `work` asks is counted in `tally`. */
  during<Result>(tally: CostTally, work: () => Promise<Result>): Promise<Result> {
    return this.#tallies.run(tally, work);
  }

  onRequest(report: RequestReport): void {
    this.#tallies.getStore()?.onRequest(report);
    this.#next.onRequest(report);
  }

  onWait(report: WaitReport): void {
    this.#tallies.getStore()?.onWait(report);
    this.#next.onWait(report);
  }
}
