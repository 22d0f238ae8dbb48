/** Live progress: a hint beside the resume state, written a few times a second, never waited for. */
import { z } from 'zod';
import type { ProgressLine } from './job.ts';

/** What is needed of the resume state. */
interface Hints {
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
}

const REPORT_EVERY_MS = 250;
const KEPT_MS = 60_000;
/** Runs whose reports wait for their turn; beyond that they are written at once. */
const RUNS_MAX = 1_000;

const storedLines = z.array(
  z.object({
    label: z.string(),
    done: z.string(),
    total: z.string().optional(),
    unit: z.enum(['rows', 'bytes', 'parties', 'segments', 'files']),
    note: z.string().optional(),
  }),
);

export class ProgressHints {
  readonly #hints: Hints;
  /** The newest report of each run that was written lately: written next, so that the last one is not lost. */
  readonly #waiting = new Map<string, readonly ProgressLine[] | undefined>();

  constructor(hints: Hints) {
    this.#hints = hints;
  }

  report(runId: string, lines: readonly ProgressLine[]): void {
    if (this.#waiting.has(runId)) {
      this.#waiting.set(runId, lines);
      return;
    }
    this.#write(runId, lines);
    if (this.#waiting.size >= RUNS_MAX) return;
    this.#waiting.set(runId, undefined);
    setTimeout(() => this.#writeWaiting(runId), REPORT_EVERY_MS).unref();
  }

  #writeWaiting(runId: string): void {
    const lines = this.#waiting.get(runId);
    this.#waiting.delete(runId);
    if (lines !== undefined) this.report(runId, lines);
  }

  #write(runId: string, lines: readonly ProgressLine[]): void {
    // A hint that is lost costs nothing; the store's adapter has said that it is away.
    this.#hints.set(progressKey(runId), lines, KEPT_MS).catch(() => undefined);
  }

  async read(runId: string): Promise<readonly ProgressLine[]> {
    const parsed = storedLines.safeParse(await this.#hints.get(progressKey(runId)).catch(() => undefined));
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
