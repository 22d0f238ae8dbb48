/** Live progress: a hint beside the resume state, written a few times a second, never waited for. */
import type { ResumeState } from '../../state/resume-state.ts';
import type { ProgressLine } from './progress-line.ts';

const WRITE_EVERY_MS = 250;
const KEPT_MS = 60_000;

export class ProgressHints implements Disposable {
  readonly #hints: Pick<ResumeState, 'get' | 'set'>;
  readonly #onReport: (lines: readonly ProgressLine[]) => void;
  /** The newest report of each run that is not written yet. */
  readonly #unwritten = new Map<string, readonly ProgressLine[]>();
  #isClosed = false;

  /** @param onReport called with each report, whether it is written or not */
  constructor(
    hints: Pick<ResumeState, 'get' | 'set'>,
    onReport: (lines: readonly ProgressLine[]) => void = () => undefined,
  ) {
    this.#hints = hints;
    this.#onReport = onReport;
  }

  report(runId: string, lines: readonly ProgressLine[]): void {
    this.#onReport(lines);
    if (this.#isClosed) return;
    if (this.#unwritten.size === 0) setTimeout(() => this.#writeAll(), WRITE_EVERY_MS).unref();
    this.#unwritten.set(runId, lines);
  }

  /** Before a run's verdict is told: whoever reads it finds the last report. Never fails. */
  async settle(runId: string): Promise<void> {
    const lines = this.#unwritten.get(runId);
    this.#unwritten.delete(runId);
    // A hint that is lost costs nothing; the store's adapter has said that it is away.
    if (lines !== undefined) await this.#hints.set(progressKey(runId), lines, KEPT_MS).catch(() => undefined);
  }

  /** Later reports are dropped: the store they would go to is about to be closed. */
  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#unwritten.clear();
  }

  async read(runId: string): Promise<readonly ProgressLine[]> {
    const stored = await this.#hints.get(progressKey(runId)).catch(() => undefined);
    return areLines(stored) ? stored : [];
  }

  #writeAll(): void {
    for (const runId of this.#unwritten.keys()) void this.settle(runId);
  }
}

/** Another version may have written what lies in the resume state. */
function areLines(stored: unknown): stored is readonly ProgressLine[] {
  const isLine = (line: Partial<ProgressLine> | null): boolean =>
    [line?.label, line?.done, line?.unit].every((part) => typeof part === 'string');
  return Array.isArray(stored) && stored.every(isLine);
}

/** Under which an export in flight is found by its party, whichever run asked for it. */
export function exportKey(partyId: string): string {
  return `export.${partyId}`;
}

function progressKey(runId: string): string {
  return `progress:${runId}`;
}
