/**
 * The sum of the last rows before a closed range's end, taken while they stream by in any order: those of
 * its last hour, or where that is empty, of the newest second that has any.
 */
import { floorSecond, type Micros, SECOND_MICROS } from '../core/time.ts';
import { RowSum } from '../ledger/row-sum.ts';
import type { TailSum } from './ports.ts';

const WINDOW_MICROS = 3600n * SECOND_MICROS;

export class Tail {
  readonly #windowFrom: number;
  readonly #end: number;
  readonly #window = new RowSum();
  readonly #newest = new RowSum();
  #newestSecond = Number.NEGATIVE_INFINITY;

  /** @param asked the earliest instant the answer holds; the tail cannot reach behind it */
  constructor(asked: Micros, end: Micros) {
    const from = end - WINDOW_MICROS;
    this.#windowFrom = secondOf(from > asked ? from : asked);
    this.#end = secondOf(end);
  }

  add(second: number, rowHash: string, zoneSeconds: number): void {
    if (second >= this.#end) return;
    if (second >= this.#windowFrom) this.#window.add(rowHash, zoneSeconds);
    if (second < this.#newestSecond) return;
    if (second > this.#newestSecond) {
      this.#newest.reset();
      this.#newestSecond = second;
    }
    this.#newest.add(rowHash, zoneSeconds);
  }

  result(headerLine: Buffer): TailSum {
    const isOlder = this.#window.rows === 0 && this.#newest.rows > 0;
    const sum = isOlder ? this.#newest : this.#window;
    return {
      from: BigInt(isOlder ? this.#newestSecond : this.#windowFrom) * SECOND_MICROS,
      rows: sum.rows,
      digest: sum.digest.hex(),
      rowForm: sum.form(headerLine),
    };
  }
}

/** Whole seconds since 1970: exact in a double for any time there is. */
export function secondOf(instant: Micros): number {
  return Number(floorSecond(instant) / SECOND_MICROS);
}
