/**
 * The sum of the last rows before a closed range's end, taken while they stream by in any order: those of
 * its last hour, or where that is empty, of the newest second that has any. Behind a window of a larger
 * range, which is continued at once, that second is enough where the hour holds much.
 */
import type { Micros } from '../../core/time.ts';
import type { TailSum } from '../store/coverage-rows.ts';
import { RowSum } from '../../ledger/digest.ts';
import { instantOf, secondOf } from '../plan/ranges.ts';
import type { BlockFindings, SpanFindings } from '../read/block-reader.ts';

const LENGTH_SECONDS = 3600;

export class Tail {
  /** In seconds. */
  readonly from: number;
  readonly end: number;
  readonly #bytesMax: number;
  readonly #sum = new RowSum();
  #bytes = 0;
  #newest = new RowSum();
  #newestSecond = Number.NEGATIVE_INFINITY;

  /**
   * @param asked the earliest instant the answer holds; the tail cannot reach behind it
   * @param bytesMax given where the range is only a window of a larger one: what its continuation may ask for again
   */
  constructor(asked: Micros, end: Micros, bytesMax: number = Number.POSITIVE_INFINITY) {
    this.end = secondOf(end);
    this.from = Math.max(secondOf(asked), this.end - LENGTH_SECONDS);
    this.#bytesMax = bytesMax;
  }

  /** Adds what was found in a block: the tail begins and ends at borders of spans. */
  add(spans: readonly SpanFindings[], newest: BlockFindings['newest']): void {
    for (const { from, sum, bytes } of spans) {
      if (from < this.from || from >= this.end) continue;
      this.#sum.merge(sum);
      this.#bytes += bytes;
    }
    if (newest === undefined || newest.second < this.#newestSecond) return;
    if (newest.second > this.#newestSecond) {
      this.#newest = new RowSum();
      this.#newestSecond = newest.second;
    }
    this.#newest.merge(newest.sum);
  }

  result(header: Buffer): TailSum {
    const isFitting = this.#sum.rows > 0 && this.#bytes <= this.#bytesMax;
    const isShorter = !isFitting && this.#newest.rows > 0;
    const [from, sum] = isShorter ? [this.#newestSecond, this.#newest] : [this.from, this.#sum];
    return { from: instantOf(from), rows: sum.rows, digest: sum.digest.hex(), rowForm: sum.form(header) };
  }
}
