/** Gathers an answer's bytes, however they are cut on their way, in blocks that end where a row does. */
import { rowTooLarge, ROW_BYTES_MAX } from '../../ledger/row-splitter.ts';

const LINE_FEED = 0x0a;
const QUOTE = 0x22;

export class BlockCutter {
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** A row may have ended. */
  #hasLineEnd = false;

  /** What came after the last row that was taken. */
  get rest(): Buffer {
    return Buffer.concat(this.#pieces);
  }

  push(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#bytes += piece.length;
    this.#hasLineEnd ||= piece.includes(LINE_FEED);
  }

  /**
   * The whole rows so far, in memory of their own; undefined where they are of fewer bytes than that, or none has ended.
   * @throws PermanentError `ROW_TOO_LARGE`
   */
  take(bytesMin: number): Buffer | undefined {
    if (!this.#hasLineEnd && this.#bytes > ROW_BYTES_MAX) throw rowTooLarge(this.#bytes);
    if (!this.#hasLineEnd || this.#bytes < bytesMin) return undefined;
    const bytes = this.rest;
    const end = rowsEnd(bytes);
    if (end === 0 && bytes.length > ROW_BYTES_MAX) throw rowTooLarge(bytes.length);
    // A copy: the rest of a row does not hold on to a whole block.
    this.#pieces = [Buffer.from(bytes.subarray(end))];
    this.#bytes -= end;
    this.#hasLineEnd = false;
    return end === 0 ? undefined : bytes.subarray(0, end);
  }
}

/** Where the last whole row ends, its line end included; 0 where none does. */
function rowsEnd(buffer: Buffer): number {
  let isQuoted = hasOddQuotes(buffer);
  let limit = buffer.length;
  while (limit > 0) {
    const quote = buffer.lastIndexOf(QUOTE, limit - 1);
    const lineFeed = isQuoted ? -1 : buffer.lastIndexOf(LINE_FEED, limit - 1);
    if (lineFeed > quote) return lineFeed + 1;
    limit = quote;
    isQuoted = !isQuoted;
  }
  return 0;
}

function hasOddQuotes(buffer: Buffer): boolean {
  let isOdd = false;
  for (let at = buffer.indexOf(QUOTE); at !== -1; at = buffer.indexOf(QUOTE, at + 1)) isOdd = !isOdd;
  return isOdd;
}
