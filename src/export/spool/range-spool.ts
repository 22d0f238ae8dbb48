/** The rows of a range of seconds on their way into one new object, which is begun with the first of them. */
import type { Compression } from '../../ledger/objects/object-keys.ts';
import { RowSum } from '../../ledger/row-sum.ts';
import { type SpoolFile, type Spooled, SpoolWriter } from './spool-writer.ts';

export interface SpoolOptions {
  readonly compression: Compression;
  /** A new place in the spool. */
  readonly spoolFile: () => Promise<SpoolFile>;
}

export class RangeSpool implements AsyncDisposable {
  /** Seconds; `to` is exclusive. Either may be infinite. */
  readonly from: number;
  readonly to: number;
  /** Whoever adds rows sums them here. */
  readonly sum = new RowSum();
  readonly #options: SpoolOptions;
  #added: Buffer[] = [];
  #writer: Promise<SpoolWriter> | undefined;

  constructor(from: number, to: number, options: SpoolOptions) {
    this.from = from;
    this.to = to;
    this.#options = options;
  }

  holds(second: number): boolean {
    return second >= this.from && second < this.to;
  }

  /** Until they are flushed, `rows` must not change. */
  add(rows: Buffer): void {
    this.#added.push(rows);
  }

  /** Copies what was added, and writes it. @param header the first one is written */
  async flush(header: Buffer): Promise<void> {
    if (this.#added.length === 0) return;
    const rows = Buffer.concat(this.#added);
    this.#added = [];
    this.#writer ??= this.#begin(header);
    await (await this.#writer).write(rows);
  }

  /** @returns undefined where no row came */
  async finish(): Promise<Spooled | undefined> {
    return (await this.#writer)?.finish();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const writer = await this.#writer?.catch(() => undefined);
    await writer?.[Symbol.asyncDispose]();
  }

  async #begin(header: Buffer): Promise<SpoolWriter> {
    const { compression, spoolFile } = this.#options;
    return new SpoolWriter(await spoolFile(), header, compression, this.sum);
  }
}
