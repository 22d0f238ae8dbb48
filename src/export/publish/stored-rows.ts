/** Rows of a published object on their way into another one. */
import { hashRow, RowDigest } from '../../ledger/digest.ts';
import { type Layout, readHeader } from '../../ledger/header.ts';
import { RowFields } from '../../ledger/row-fields.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import { VegaTimeReader } from '../../ledger/vega-time.ts';
import type { Tally } from '../spool/spool-writer.ts';

/** Rows of these seconds, `to` exclusive, are counted and wait to be written. */
export interface StoredTarget {
  readonly from: number;
  readonly to: number;
  readonly tally: Tally;
  pending: Buffer[];
}

/** Sends each row to the range its second lies in; the sum is of all rows. */
export class StoredRows {
  readonly sum = new RowDigest();
  header: Buffer = Buffer.alloc(0);
  #layout: Layout | undefined;
  readonly #targets: readonly StoredTarget[];
  readonly #fields = new RowFields();
  readonly #time = new VegaTimeReader();
  readonly #splitter = new RowSplitter((buffer, start, end, next) => this.#row(buffer, start, end, next));

  constructor(targets: readonly StoredTarget[]) {
    this.#targets = targets;
  }

  get layout(): Layout {
    return this.#layout ?? readHeader(this.header);
  }

  push(chunk: Buffer): void {
    this.#splitter.push(chunk);
  }

  #row(buffer: Buffer, start: number, end: number, next: number): void {
    if (this.#layout === undefined) {
      this.#layout = readHeader(buffer.subarray(start, end));
      this.header = Buffer.from(buffer.subarray(start, next));
      return;
    }
    const column = this.#layout.index.vega_time;
    this.#fields.scan(buffer, start, end);
    this.#time.read(buffer, this.#fields.start(column), this.#fields.end(column));
    const { second, zoneSeconds } = this.#time;
    const hash = hashRow(buffer, start, end);
    this.sum.add(hash);
    const target = this.#targets.find(({ from, to }) => second >= from && second < to);
    if (target === undefined) return;
    target.tally.add(hash, second, zoneSeconds, next - start);
    target.pending.push(buffer.subarray(start, next));
  }
}
