/** How fast the source answers its lists, to tell a passing delay from an overloaded source. */
import type { RequestReport, SourceObserver, WaitReport } from './ports.ts';

/** Answers that the median is taken over. */
const LATENCIES_KEPT = 64;

/** Of the last good list answers. Rising far above the median: leave the source alone. */
export interface ListLatency {
  readonly lastMs: number;
  readonly medianMs: number;
}

export class LatencyObserver implements SourceObserver {
  readonly #next: SourceObserver | undefined;
  readonly #latencies: number[] = [];

  /** @param next is told of everything, for metrics and costs */
  constructor(next?: SourceObserver) {
    this.#next = next;
  }

  onRequest(report: RequestReport): void {
    const isGood = report.status === 200 && report.errorCode === undefined;
    if (isGood && report.route !== 'export') {
      this.#latencies.push(report.durationMs);
      if (this.#latencies.length > LATENCIES_KEPT) this.#latencies.shift();
    }
    this.#next?.onRequest(report);
  }

  onWait(report: WaitReport): void {
    this.#next?.onWait(report);
  }

  /** Undefined before the first good answer. */
  listLatency(): ListLatency | undefined {
    const sorted = this.#latencies.toSorted((a, b) => a - b);
    const [lastMs, medianMs] = [this.#latencies.at(-1), sorted[Math.floor(sorted.length / 2)]];
    return lastMs === undefined || medianMs === undefined ? undefined : { lastMs, medianMs };
  }
}
