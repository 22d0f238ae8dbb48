/** Measures how fast the source responds to requests for lists. */
import type { RequestReport, SourceObserver, WaitReport } from './ports.ts';

/** How many responses the median is computed from. */
const LATENCIES_KEPT = 64;

/**
 * The latency of successful list responses. If the last one is far above the median,
 * the source is overloaded rather than briefly slow, and should be left alone for a
 * while.
 */
export interface ListLatency {
  readonly lastMs: number;
  readonly medianMs: number;
}

/** Records the latencies of the most recent successful list responses. */
export class LatencyObserver implements SourceObserver {
  readonly #next: SourceObserver | undefined;
  readonly #latencies: number[] = [];

  /** @param next also receives every report, for metrics and costs */
  constructor(next?: SourceObserver) {
    this.#next = next;
  }

  onRequest(report: RequestReport): void {
    const isGood = report.status === 200 && report.errorCode === undefined;
    if (
      isGood &&
      (report.route === 'parties' || report.route === 'checkpoints')
    )
      this.#latencies.push(report.durationMs);
    if (this.#latencies.length > LATENCIES_KEPT) this.#latencies.shift();
    this.#next?.onRequest(report);
  }

  onWait(report: WaitReport): void {
    this.#next?.onWait(report);
  }

  /**
   * Returns the latency of list responses.
   * @returns undefined before the first successful response
   */
  listLatency(): ListLatency | undefined {
    const sorted = this.#latencies.toSorted((a, b) => a - b);
    const medianMs = sorted[Math.floor(sorted.length / 2)];
    const lastMs = this.#latencies.at(-1);
    if (lastMs === undefined || medianMs === undefined) return undefined;
    return { lastMs, medianMs };
  }
}
