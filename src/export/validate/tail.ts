/**
 * The sum of the last rows before a closed range's end, taken while they stream by in any order: those of
 * its last hour, or where that is empty, of the newest second that has any. Behind a window of a larger
 * range, which is continued at once, less is enough where an hour holds much.
 */
import type { Micros } from '../../core/time.ts';
import { instantOf, secondOf } from '../plan/ranges.ts';
import { RowSum } from '../../ledger/row-sum.ts';
import type { BlockFindings, SpanFindings } from '../read/block-reader.ts';
import type { TailSum } from '../../ledger/objects/coverage-record.ts';

const WINDOW_SECONDS = 3600;
const SHORTER_SECONDS = [3600, 60, 1];

interface Window {
  readonly from: number;
  readonly sum: RowSum;
  bytes: number;
}

export class Tail {
  /** The longest first. */
  readonly #windows: readonly Window[];
  readonly #bytesMax: number;
  /** In seconds. */
  readonly end: number;
  #newest = new RowSum();
  #newestSecond = Number.NEGATIVE_INFINITY;

  /**
   * @param asked the earliest instant the answer holds; the tail cannot reach behind it
   * @param windowBytesMax given where the range is only a window of a larger one: what its continuation may ask for again
   */
  constructor(asked: Micros, end: Micros, windowBytesMax?: number) {
    const [first, last] = [secondOf(asked), secondOf(end)];
    const lengths = windowBytesMax === undefined ? [WINDOW_SECONDS] : SHORTER_SECONDS;
    this.#windows = lengths.map((seconds) => ({
      from: Math.max(first, last - seconds),
      sum: new RowSum(),
      bytes: 0,
    }));
    this.#bytesMax = windowBytesMax ?? Number.POSITIVE_INFINITY;
    this.end = last;
  }

  get borders(): number[] {
    return [...this.#windows.map(({ from }) => from), this.end];
  }

  /** Adds what was found in a block: windows begin at borders of spans. */
  add(spans: readonly SpanFindings[], newest: BlockFindings['newest']): void {
    for (const { from, sum, bytes } of spans) {
      for (const window of this.#windows) {
        if (from < window.from || from >= this.end) continue;
        window.sum.merge(sum);
        window.bytes += bytes;
      }
    }
    if (newest === undefined || newest.second < this.#newestSecond) return;
    if (newest.second > this.#newestSecond) {
      this.#newest = new RowSum();
      this.#newestSecond = newest.second;
    }
    this.#newest.merge(newest.sum);
  }

  result(header: Buffer): TailSum {
    const { from, sum } = this.#chosen();
    return {
      from: instantOf(from),
      rows: sum.rows,
      digest: sum.digest.hex(),
      rowForm: sum.form(header),
    };
  }

  /** The longest that has rows and is small enough; else the newest second, where there is one. */
  #chosen(): { readonly from: number; readonly sum: RowSum } {
    const fitting = this.#windows.find(({ sum, bytes }) => sum.rows > 0 && bytes <= this.#bytesMax);
    if (fitting !== undefined) return fitting;
    if (this.#newest.rows > 0) return { from: this.#newestSecond, sum: this.#newest };
    return { from: this.#windows[0]?.from ?? this.end, sum: new RowSum() };
  }
}
