/**
 * An answer's blocks on their way through the pool: read by any thread in any order, taken in the order of the answer.
 * What may be on its way at once is all that holds the source back.
 */
import { type BlockFindings, readBlock, type RowQuestion } from './block-reader.ts';
import type { RowPool } from './row-pool.ts';

/** Blocks beside those that threads are reading: filled, waiting, being written. */
const SPARE_BLOCKS = 4;

/** Called in the order of the answer; resolves when the rows are stored. */
type Take = (rows: Buffer, findings: BlockFindings) => Promise<unknown>;

export class BlockFlight {
  readonly #pool: RowPool;
  readonly #take: Take;
  readonly #landing: Promise<unknown>[] = [];
  #lastTaken: Promise<unknown> = Promise.resolve();
  #isStopped = false;

  constructor(pool: RowPool, take: Take) {
    this.#pool = pool;
    this.#take = take;
  }

  /** Resolves when there is room for another block. @throws what an earlier block failed of */
  async send(question: RowQuestion, rows: Buffer): Promise<void> {
    const landing = this.#land(this.#read(question, rows), rows, this.#lastTaken);
    // Met again where it is waited for.
    landing.catch(() => undefined);
    this.#landing.push(landing);
    if (this.#landing.length >= this.#pool.size + SPARE_BLOCKS) await this.#landing.shift();
  }

  /** Resolves when nothing is on its way. @throws what the first block failed of that did */
  async landed(): Promise<void> {
    while (this.#landing.length > 0) await this.#landing.shift();
  }

  /** In-flight reads are abandoned: no block is taken any more. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Where every thread has a block in hand and one waiting, this thread has time to read one itself. */
  async #read(question: RowQuestion, rows: Buffer): Promise<BlockFindings> {
    const isBusy = this.#pool.waiting >= 2 * this.#pool.size;
    return isBusy ? readBlock(question, rows) : await this.#pool.read(question, rows);
  }

  async #land(reading: Promise<BlockFindings>, rows: Buffer, before: Promise<unknown>): Promise<void> {
    // Wrapped: the next block is taken after this one is, not after its rows are stored.
    const taken = Promise.all([reading, before]).then(([findings]) => ({
      stored: this.#isStopped ? undefined : this.#take(rows, findings),
    }));
    this.#lastTaken = taken;
    await (
      await taken
    ).stored;
  }
}
