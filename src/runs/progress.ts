/**
 * Live progress. Turns the stages' reports into lines that look the same in every view,
 * measures the current rate, and writes the lines next to the resume state, where other
 * processes read them. They are written a few times per second, and work never waits for
 * that.
 */
import { formatCount, formatPlural } from '../format/format.js';
import type { ExportProgress } from '../exports/export-context.ts';
import type { LakeProgress } from '../lake/build/build.ts';
import type { SyncProgress } from '../lists/sync-context.ts';
import type { VerifyCounts } from '../warehouse/verify.ts';
import type { ResumeState } from '../state/resume-state.ts';

const WRITE_EVERY_MS = 250;
const KEPT_MS = 60_000;
const PARTY_SHOWN_CHARACTERS = 12;
const RATE_WINDOW_MS = 10_000;
const SAMPLE_EVERY_MS = 250;

/**
 * One line of progress, shown as a bar if `total` is known. Counts are strings so that
 * they keep all their digits.
 */
export interface ProgressLine {
  readonly label: string;
  readonly done: string;
  readonly total?: string | undefined;
  readonly unit: 'rows' | 'bytes' | 'parties' | 'segments' | 'files';
  readonly note?: string | undefined;
  /** True if another line counts this work too, so its end is not reported separately. */
  readonly isPart?: boolean | undefined;
}
type Lines = readonly ProgressLine[];

export function syncLine({
  list,
  rows,
  pages,
  rowsPerSecond,
  phase,
}: SyncProgress): ProgressLine {
  const ending = phase === 'reading' ? '' : ', proving the end';
  const note = `${formatCount(rowsPerSecond)} rows/s, ${formatPlural(pages, 'page')}${ending}`;
  return { label: list, done: String(rows), unit: 'rows', note };
}

/**
 * Returns the progress line of an export. Its label is the same for every party, because
 * a nightly run exports many; the note names the party.
 */
export function exportLine({
  partyId,
  bytes,
  rows,
  segments,
}: ExportProgress): ProgressLine {
  const cut = partyId.slice(0, PARTY_SHOWN_CHARACTERS);
  const party = cut === partyId ? partyId : `${cut}…`;
  const note = `${formatPlural(rows, 'row')}, ${formatPlural(segments, 'segment')}, party ${party}`;
  return { label: 'exporting', done: String(bytes), unit: 'bytes', note };
}

export function loadLine(
  parties: number,
  segments: number,
  rows: bigint,
): ProgressLine {
  const note =
    `${formatPlural(segments, 'segment')} of ` +
    formatPlural(parties, 'party', 'parties');
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
  const note = `${formatPlural(segments, 'segment')}${rows === 0n ? '' : `, ${formatPlural(rows, 'row')}`}`;
  return { label: 'verify', done: String(objectBytes), unit: 'bytes', note };
}

interface Sample {
  readonly count: bigint;
  readonly atMs: number;
}

/** Measures the current rate of a growing count, over the last few seconds only. */
export class RateMeter {
  /** Oldest first; the window and the sampling interval bound their number. */
  #samples: Sample[] = [];
  #latest: Sample | undefined;

  add(count: bigint, atMs: number): void {
    const last = this.#samples.at(-1);
    // A count that falls means that a retry started over.
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

  /** 0 until there are enough samples. */
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
  /** For each run, the newest report that has not been written yet. */
  readonly #unwritten = new Map<string, Lines>();
  #isClosed = false;

  /** @param onReport called with each report, even if it is not written */
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

  /** Writes the last report before the run's verdict is shown. Never fails. */
  async settle(runId: string): Promise<void> {
    const lines = this.#unwritten.get(runId);
    this.#unwritten.delete(runId);
    // A lost hint costs nothing, and the store's adapter has already logged that the
    // store is unreachable.
    if (lines !== undefined)
      await this.#hints
        .set(progressKey(runId), lines, KEPT_MS)
        .catch(() => undefined);
  }

  /** Drops later reports, because their store is about to be closed. */
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

/**
 * Whether the stored value has this version's shape; another version may have written it.
 */
function areLines(stored: unknown): stored is Lines {
  const isLine = (line: Partial<ProgressLine> | null): boolean =>
    [line?.label, line?.done, line?.unit].every(
      (part) => typeof part === 'string',
    );
  return Array.isArray(stored) && stored.every(isLine);
}

/**
 * Returns the key of an export's progress, which names the party, not the run that
 * requested it.
 */
export function exportKey(partyId: string): string {
  return `export.${partyId}`;
}

function progressKey(runId: string): string {
  return `progress:${runId}`;
}

/** Returns a function that reports the same progress under each of the keys. */
export function reportTo(
  keys: readonly string[],
  hints: Pick<ProgressHints, 'report'>,
): (lines: Lines) => void {
  return (lines) => keys.forEach((key) => hints.report(key, lines));
}
