/**
 * Gathers an answer's bytes, however they are cut on their way, in blocks that end where a row does. The
 * memory of a block can be read by other threads, and is used again when everybody is done with it.
 */
import { rowTooLarge, ROW_BYTES_MAX } from '../../ledger/row-splitter.ts';

const LINE_FEED = 0x0a;
const QUOTE = 0x22;
/** Enough for most answers of a night, which are a header and no row. */
const FIRST_BYTES = 64 * 2 ** 10;

/** Whole rows in the first `bytes` bytes. */
export interface Block {
  readonly memory: SharedArrayBuffer;
  readonly bytes: number;
}

/** A view, not a copy: valid as long as the block's memory is not used again. */
export function rowsOf({ memory, bytes }: Block): Buffer {
  return Buffer.from(memory, 0, bytes);
}

export class BlockCutter {
  readonly #blockBytes: number;
  #memory: SharedArrayBuffer;
  #buffer: Buffer;
  #filled = 0;

  /** @param blockBytes what a block holds; only one that is a single longer row holds more */
  constructor(blockBytes: number) {
    this.#blockBytes = blockBytes;
    this.#memory = new SharedArrayBuffer(Math.min(FIRST_BYTES, blockBytes));
    this.#buffer = Buffer.from(this.#memory);
  }

  get isFull(): boolean {
    return this.#filled === this.#buffer.length && this.#filled >= this.#blockBytes;
  }

  /** What came after the last row that was taken. Valid until the next call of anything here. */
  get rest(): Buffer {
    return this.#buffer.subarray(0, this.#filled);
  }

  /** @returns how many bytes were copied: all, or as many as make it full */
  fill(chunk: Buffer, from: number): number {
    if (this.#filled === this.#buffer.length && !this.isFull) this.#enlarge();
    const copied = chunk.copy(this.#buffer, this.#filled, from);
    this.#filled += copied;
    return copied;
  }

  /**
   * The whole rows so far, in place: call `drop` or `leave` before anything else.
   * @returns undefined where no row has ended yet; what is full has then been enlarged
   * @throws PermanentError `ROW_TOO_LARGE`
   */
  rows(): Block | undefined {
    const bytes = rowsEnd(this.#buffer, this.#filled);
    if (bytes > 0) return { memory: this.#memory, bytes };
    if (this.#filled > ROW_BYTES_MAX) throw rowTooLarge(this.#filled);
    if (this.isFull) this.#enlarge();
    return undefined;
  }

  /** Goes on in the same memory: nobody needs the rows any more. */
  drop({ bytes }: Block): void {
    this.#buffer.copyWithin(0, bytes, this.#filled);
    this.#filled -= bytes;
  }

  /** Leaves the rows where they are and goes on in other memory, that nobody uses any more. */
  leave({ bytes }: Block, memory: SharedArrayBuffer | undefined): void {
    const rest = this.#buffer.subarray(bytes, this.#filled);
    const isFit = memory?.byteLength === this.#blockBytes && rest.length < memory.byteLength;
    this.#use(isFit ? memory : new SharedArrayBuffer(Math.max(this.#blockBytes, rest.length * 2)));
    this.#filled = rest.copy(this.#buffer);
  }

  #enlarge(): void {
    const held = this.rest;
    this.#use(new SharedArrayBuffer(held.length * 2));
    held.copy(this.#buffer);
  }

  #use(memory: SharedArrayBuffer): void {
    this.#memory = memory;
    this.#buffer = Buffer.from(memory);
  }
}

/** Where the last whole row of `buffer[0, end)` ends, its line end included; 0 where none does. */
function rowsEnd(buffer: Buffer, end: number): number {
  let isQuoted = hasOddQuotes(buffer, end);
  let limit = end;
  while (limit > 0) {
    const quote = buffer.lastIndexOf(QUOTE, limit - 1);
    const lineFeed = isQuoted ? -1 : buffer.lastIndexOf(LINE_FEED, limit - 1);
    if (lineFeed > quote) return lineFeed + 1;
    limit = quote;
    isQuoted = !isQuoted;
  }
  return 0;
}

function hasOddQuotes(buffer: Buffer, end: number): boolean {
  let isOdd = false;
  for (let at = buffer.indexOf(QUOTE); at !== -1 && at < end; at = buffer.indexOf(QUOTE, at + 1))
    isOdd = !isOdd;
  return isOdd;
}
