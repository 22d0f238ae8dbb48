/**
 * Memory for blocks of rows. Threads read a block in place, and its memory is reused
 * once its rows are stored. If each block were allocated, the garbage collector would
 * run several times a second during a large export, and take a quarter of the export's
 * processor time.
 */
export class BlockMemory {
  readonly #blockBytes: number;
  readonly #sparesMax: number;
  readonly #spares: Buffer[] = [];

  /**
   * @param blockBytes the size of a reusable block
   * @param sparesMax how many blocks to keep for reuse
   */
  constructor(blockBytes: number, sparesMax: number) {
    this.#blockBytes = blockBytes;
    this.#sparesMax = sparesMax;
  }

  /**
   * Returns a block of at least the given size, with arbitrary content. A block that is
   * larger than a reusable one is allocated, and is not kept afterwards.
   */
  take(bytes: number): Buffer {
    const spare = bytes > this.#blockBytes ? undefined : this.#spares.pop();
    return (
      spare ??
      Buffer.from(new SharedArrayBuffer(Math.max(bytes, this.#blockBytes)))
    );
  }

  /**
   * Offers a block for reuse. No thread and no stream may still use it.
   * @param rows the block, or a slice of it that begins where the block does
   */
  giveBack(rows: Buffer): void {
    const block = Buffer.from(rows.buffer);
    if (
      block.length === this.#blockBytes &&
      this.#spares.length < this.#sparesMax
    )
      this.#spares.push(block);
  }
}
