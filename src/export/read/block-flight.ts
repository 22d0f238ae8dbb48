/**
 * An answer's blocks on their way through the pool: read by any thread in any order, taken in the order of
 * the answer, and their memory used again. What may be on its way at once is all that holds the source back.
 */
import { type Block, rowsOf } from './block-cutter.ts';
import { type BlockFindings, readBlock, type RowQuestion } from './block-reader.ts';
import type { RowPool } from './row-pool.ts';

/** Blocks beside those that threads are reading: filled, waiting, being written. */
const SPARE_BLOCKS = 4;

/** Called in the order of the answer; resolves when the block's memory is not needed any more. */
type Take = (block: Block, findings: BlockFindings) => Promise<unknown>;

export class BlockFlight {
  readonly #pool: RowPool;
  readonly #take: Take;
  readonly #landing: Promise<SharedArrayBuffer>[] = [];
  #lastTaken: Promise<unknown> = Promise.resolve();
  #failure: { readonly error: unknown } | undefined;
  #isStopped = false;

  constructor(pool: RowPool, take: Take) {
    this.#pool = pool;
    this.#take = take;
  }

  /**
   * Resolves when there is room for another block.
   * @returns memory of one that has landed, where there is any
   * @throws what an earlier block failed of
   */
  async send(question: RowQuestion, block: Block): Promise<SharedArrayBuffer | undefined> {
    const landing = this.#land(this.#read(question, block), block, this.#lastTaken);
    landing.catch((error: unknown) => (this.#failure ??= { error }));
    this.#landing.push(landing);
    return this.#landing.length < this.#pool.size + SPARE_BLOCKS ? undefined : await this.#landing.shift();
  }

  /** @throws what a block failed of */
  check(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  /** Resolves when nothing is on its way. @throws what a block failed of */
  async landed(): Promise<void> {
    while (this.#landing.length > 0) await this.#landing.shift();
    this.check();
  }

  /** In-flight reads are abandoned: no block is taken any more. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Where every thread has a block in hand and one waiting, this thread has time to read one itself. */
  async #read(question: RowQuestion, block: Block): Promise<BlockFindings> {
    if (this.#pool.waiting >= 2 * this.#pool.size) return readBlock(question, rowsOf(block));
    return await this.#pool.read(question, block.memory, block.bytes);
  }

  async #land(
    reading: Promise<BlockFindings>,
    block: Block,
    before: Promise<unknown>,
  ): Promise<SharedArrayBuffer> {
    // Wrapped: the next block is taken after this one is, not after its rows are stored.
    const taken = Promise.all([reading, before]).then(([findings]) => ({
      stored: this.#isStopped ? undefined : this.#take(block, findings),
    }));
    this.#lastTaken = taken;
    const { stored } = await taken;
    await stored;
    return block.memory;
  }
}
