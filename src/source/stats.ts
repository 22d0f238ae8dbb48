/** What the work has cost the source, and how well the source is: counted here, shown elsewhere. */
import type { RequestReport, Route, SourceObserver, WaitReason, WaitReport } from './ports.ts';

/** As many list answers as tell a passing delay from an unwell source. */
const LATENCIES_KEPT = 64;

export interface SourceStats {
  readonly requests: Readonly<Record<Route, number>>;
  /** Requests that were sent again. */
  readonly retries: number;
  /** Answers that were no good one, by status; 0 counts those that never came. */
  readonly failures: Readonly<Record<number, number>>;
  /** Over the wire, bodies only. */
  readonly bytes: number;
  readonly waitedMs: Readonly<Record<WaitReason, number>>;
  /** Of the last list answers. Undefined before the first. Rising far above the median: leave the source alone. */
  readonly listLatency: { readonly lastMs: number; readonly medianMs: number } | undefined;
}

export class StatsObserver implements SourceObserver {
  readonly #next: SourceObserver | undefined;
  readonly #requests: Record<Route, number> = { parties: 0, checkpoints: 0, export: 0 };
  readonly #failures: Record<number, number> = {};
  readonly #waitedMs: Record<WaitReason, number> = { rate: 0, ban: 0, retry: 0 };
  readonly #latencies: number[] = [];
  #retries = 0;
  #bytes = 0;

  /** @param next is told as well, for metrics */
  constructor(next?: SourceObserver) {
    this.#next = next;
  }

  onRequest(report: RequestReport): void {
    const { route, status, errorCode, attempt } = report;
    this.#requests[route] += 1;
    this.#bytes += report.bytes;
    if (attempt > 1) this.#retries += 1;
    if (status !== 200 || errorCode !== undefined) {
      this.#failures[status ?? 0] = (this.#failures[status ?? 0] ?? 0) + 1;
    } else if (route !== 'export') {
      this.#latencies.push(report.durationMs);
      if (this.#latencies.length > LATENCIES_KEPT) this.#latencies.shift();
    }
    this.#next?.onRequest(report);
  }

  onWait(report: WaitReport): void {
    this.#waitedMs[report.reason] += report.waitMs;
    this.#next?.onWait(report);
  }

  stats(): SourceStats {
    const sorted = this.#latencies.toSorted((a, b) => a - b);
    const [lastMs, medianMs] = [this.#latencies.at(-1), sorted[Math.floor(sorted.length / 2)]];
    return {
      requests: { ...this.#requests },
      retries: this.#retries,
      failures: { ...this.#failures },
      bytes: this.#bytes,
      waitedMs: { ...this.#waitedMs },
      listLatency: lastMs === undefined || medianMs === undefined ? undefined : { lastMs, medianMs },
    };
  }
}
