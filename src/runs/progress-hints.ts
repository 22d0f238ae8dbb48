/** Live progress: a hint beside the resume state, written a few times a second, never waited for. */
import type { ProgressLine } from './progress-line.ts';

/** What is needed of the resume state. */
interface Hints {
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
}

const REPORT_EVERY_MS = 250;
const KEPT_MS = 60_000;
/** Runs whose reports wait for their turn; beyond that they are written at once. */
const RUNS_MAX = 1_000;

export class ProgressHints implements Disposable {
  readonly #hints: Hints;
  /** The newest report of each run that was written lately: written next, so that the last one is not lost. */
  readonly #waiting = new Map<string, readonly ProgressLine[] | undefined>();
  readonly #onReport: ((lines: readonly ProgressLine[]) => void) | undefined;
  #isClosed = false;

  /** @param onReport called with each report, whether it is written or not */
  constructor(hints: Hints, onReport?: (lines: readonly ProgressLine[]) => void) {
    this.#hints = hints;
    this.#onReport = onReport;
  }

  report(runId: string, lines: readonly ProgressLine[]): void {
    this.#onReport?.(lines);
    this.#put(runId, lines);
  }

  #put(runId: string, lines: readonly ProgressLine[]): void {
    if (this.#isClosed) return;
    if (this.#waiting.has(runId)) {
      this.#waiting.set(runId, lines);
      return;
    }
    void this.#write(runId, lines);
    if (this.#waiting.size >= RUNS_MAX) return;
    this.#waiting.set(runId, undefined);
    setTimeout(() => this.#writeWaiting(runId), REPORT_EVERY_MS).unref();
  }

  #writeWaiting(runId: string): void {
    const lines = this.#waiting.get(runId);
    this.#waiting.delete(runId);
    if (lines !== undefined) this.#put(runId, lines);
  }

  /** Before a run's verdict is told: whoever reads it finds the last report. Never fails. */
  async settle(runId: string): Promise<void> {
    const lines = this.#waiting.get(runId);
    if (lines === undefined || this.#isClosed) return;
    this.#waiting.set(runId, undefined);
    await this.#write(runId, lines);
  }

  /** Later reports are dropped: the store they would go to is about to be closed. */
  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#waiting.clear();
  }

  async #write(runId: string, lines: readonly ProgressLine[]): Promise<void> {
    // A hint that is lost costs nothing; the store's adapter has said that it is away.
    await this.#hints.set(progressKey(runId), lines, KEPT_MS).catch(() => undefined);
  }

  async read(runId: string): Promise<readonly ProgressLine[]> {
    const stored = await this.#hints.get(progressKey(runId)).catch(() => undefined);
    if (stored === undefined) return [];
    // A command that looks seldom finds any: only then it needs the schema, and zod.
    const { storedLines } = await import('./progress-line.ts');
    const parsed = storedLines.safeParse(stored);
    return parsed.success ? parsed.data : [];
  }
}

/** Under which an export in flight is found by its party, whichever run asked for it. */
export function exportKey(partyId: string): string {
  return `export.${partyId}`;
}

function progressKey(runId: string): string {
  return `progress:${runId}`;
}
