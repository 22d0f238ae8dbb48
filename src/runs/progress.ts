/**
 * Live progress: what stages report, as lines that every view shows the same way, their
 * present rate, and the hint beside the resume state that others read, written a few
 * times a second and never waited for.
 */
import type { ExportProgress } from '../exports/request.ts';
import type { LakeProgress } from '../lake/build/build.ts';
import type { SyncProgress } from '../lists/sync-context.ts';
import type { VerifyCounts } from '../warehouse/verify.ts';
import type { ResumeState } from '../state/resume-state.ts';

const WRITE_EVERY_MS = 250;
const KEPT_MS = 60_000;
const PARTY_SHOWN_CHARACTERS = 12;
const RATE_WINDOW_MS = 10_000;
const SAMPLE_EVERY_MS = 250;

/** A bar where `total` is known. Counts are text so that none loses digits. */
export interface ProgressLine {
  readonly label: string;
  readonly done: string;
  readonly total?: string | undefined;
  readonly unit: 'rows' | 'bytes' | 'parties' | 'segments' | 'files';
  readonly note?: string | undefined;
  /** One piece of what another line counts: it ends without a word of its own. */
  readonly isPart?: boolean | undefined;
}
type Lines = readonly ProgressLine[];

/**
 * Shared by all lines: a formatter takes 70 µs to make, and a large answer reports each
 * of its thousands of chunks.
 */
const COUNT = new Intl.NumberFormat('en');

/** `1 segment`, `20,224 rows`. */
function quantity(count: number | bigint, noun: string): string {
  const shown = COUNT.format(count);
  return `${shown} ${noun}${BigInt(count) === 1n ? '' : 's'}`;
}

export function syncLine({
  list,
  rows,
  pages,
  rowsPerSecond,
  phase,
}: SyncProgress): ProgressLine {
  const ending = phase === 'reading' ? '' : ', proving the end';
  const note = `${rowsPerSecond} rows/s, ${quantity(pages, 'page')}${ending}`;
  return { label: list, done: String(rows), unit: 'rows', note };
}

/** One line, whichever party it is about: a night has many. */
export function exportLine({
  partyId,
  bytes,
  rows,
  segments,
}: ExportProgress): ProgressLine {
  const cut = partyId.slice(0, PARTY_SHOWN_CHARACTERS);
  const party = cut === partyId ? partyId : `${cut}…`;
  const note = `${quantity(rows, 'row')}, ${quantity(segments, 'segment')}, party ${party}`;
  return { label: 'exporting', done: String(bytes), unit: 'bytes', note };
}

export function loadLine(
  parties: number,
  segments: number,
  rows: bigint,
): ProgressLine {
  const note =
    `${quantity(segments, 'segment')} of ${parties} ` +
    (parties === 1 ? 'party' : 'parties');
  return { label: 'load', done: String(rows), unit: 'rows', note };
}

export function lakeLine({ partition, rows }: LakeProgress): ProgressLine {
  return { label: 'lake', done: String(rows), unit: 'rows', note: partition };
}

export function verifyLine({
  segments,
  objectBytes,
  warehouseRows,
  lakeRows,
}: VerifyCounts): ProgressLine {
  const rows = warehouseRows + lakeRows;
  const note = `${quantity(segments, 'segment')}${rows === 0n ? '' : `, ${quantity(rows, 'row')}`}`;
  return { label: 'verify', done: String(objectBytes), unit: 'bytes', note };
}

interface Sample {
  readonly count: bigint;
  readonly atMs: number;
}

/**
 * The present rate of a growing count: over the last seconds, so that it follows what
 * happens now.
 */
export class RateMeter {
  /** Oldest first; bounded by the window and the sampling interval. */
  #samples: Sample[] = [];
  #latest: Sample | undefined;

  add(count: bigint, atMs: number): void {
    const last = this.#samples.at(-1);
    // A count that falls is another count: a retry that began again.
    if (last !== undefined && count < last.count) this.#samples = [];
    this.#latest = { count, atMs };
    if (
      last === undefined ||
      this.#samples.length === 0 ||
      atMs - last.atMs >= SAMPLE_EVERY_MS
    )
      this.#samples.push(this.#latest);
    while ((this.#samples[1]?.atMs ?? Infinity) <= atMs - RATE_WINDOW_MS)
      this.#samples.shift();
  }

  /** 0 while nothing can be said. */
  get perSecond(): number {
    const first = this.#samples[0];
    const latest = this.#latest;
    if (
      first === undefined ||
      latest === undefined ||
      latest.atMs <= first.atMs
    )
      return 0;
    return (
      (Number(latest.count - first.count) * 1000) / (latest.atMs - first.atMs)
    );
  }
}

export class ProgressHints implements Disposable {
  readonly #hints: Pick<ResumeState, 'get' | 'set'>;
  readonly #onReport: (lines: Lines) => void;
  /** The newest report of each run that is not written yet. */
  readonly #unwritten = new Map<string, Lines>();
  #isClosed = false;

  /** @param onReport called with each report, whether it is written or not */
  constructor(
    hints: Pick<ResumeState, 'get' | 'set'>,
    onReport: (lines: Lines) => void = () => undefined,
  ) {
    this.#hints = hints;
    this.#onReport = onReport;
  }

  report(runId: string, lines: Lines): void {
    this.#onReport(lines);
    if (this.#isClosed) return;
    const writeAll = () =>
      [...this.#unwritten.keys()].forEach((key) => void this.settle(key));
    if (this.#unwritten.size === 0)
      setTimeout(writeAll, WRITE_EVERY_MS).unref();
    this.#unwritten.set(runId, lines);
  }

  /**
   * Writes the last report, before the run's verdict is shown. Never fails.
   */
  async settle(runId: string): Promise<void> {
    const lines = this.#unwritten.get(runId);
    this.#unwritten.delete(runId);
    // A hint that is lost costs nothing; the store's adapter has said that it is away.
    if (lines !== undefined)
      await this.#hints
        .set(progressKey(runId), lines, KEPT_MS)
        .catch(() => undefined);
  }

  /** Later reports are dropped: the store they would go to is about to be closed. */
  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#unwritten.clear();
  }

  async read(runId: string): Promise<Lines> {
    const stored = await this.#hints
      .get(progressKey(runId))
      .catch(() => undefined);
    return areLines(stored) ? stored : [];
  }
}

/** Another version may have written what lies in the resume state. */
function areLines(stored: unknown): stored is Lines {
  const isLine = (line: Partial<ProgressLine> | null): boolean =>
    [line?.label, line?.done, line?.unit].every(
      (part) => typeof part === 'string',
    );
  return Array.isArray(stored) && stored.every(isLine);
}

/** Under which an export in flight is found by its party, whichever run asked for it. */
export function exportKey(partyId: string): string {
  return `export.${partyId}`;
}

function progressKey(runId: string): string {
  return `progress:${runId}`;
}
