/**
 * Splits a stream of CSV bytes into rows, wherever its chunks begin and end. Rows are
 * passed on as positions in a buffer, without copying; only a row that spans several
 * chunks is joined.
 */
import { PermanentError } from '../errors/errors.ts';

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const QUOTE = 0x22;
/**
 * Maximum size of a row in bytes. A longer row is an error, so that it cannot fill the
 * memory.
 */
export const ROW_BYTES_MAX = 16 * 2 ** 20;

/**
 * Receives one row, `buffer[start, end)`, without its line break; `next` is the start
 * of the following row. The rows of a chunk are contiguous in one buffer, so several
 * can be passed on as one slice.
 */
export type RowVisitor = (
  buffer: Buffer,
  start: number,
  end: number,
  next: number,
) => void;

export class RowSplitter {
  readonly #onRow: RowVisitor;
  readonly #rowBytesMax: number;
  /** The beginning of a row whose end has not arrived yet. */
  #carried: Buffer[] = [];
  #carriedBytes = 0;
  #isQuoted = false;

  constructor(onRow: RowVisitor, rowBytesMax: number = ROW_BYTES_MAX) {
    this.#onRow = onRow;
    this.#rowBytesMax = rowBytesMax;
  }

  /**
   * Visits every row that ends in this chunk. The caller must not modify the chunk
   * afterwards.
   * @throws PermanentError `ROW_TOO_LARGE`
   */
  push(chunk: Buffer): void {
    let rowStart = 0;
    let from = 0;
    let quote = this.#isQuoted ? -1 : chunk.indexOf(QUOTE);
    for (;;) {
      if (this.#isQuoted) {
        const closing = chunk.indexOf(QUOTE, from);
        if (closing === -1) break;
        this.#isQuoted = false;
        from = closing + 1;
        quote = chunk.indexOf(QUOTE, from);
        continue;
      }
      const lineFeed = chunk.indexOf(LINE_FEED, from);
      if (quote !== -1 && (lineFeed === -1 || quote < lineFeed)) {
        this.#isQuoted = true;
        from = quote + 1;
        continue;
      }
      if (lineFeed === -1) break;
      this.#endRow(chunk, rowStart, lineFeed);
      rowStart = lineFeed + 1;
      from = rowStart;
    }
    this.#carry(rowStart === 0 ? chunk : chunk.subarray(rowStart));
  }

  /**
   * Returns the bytes after the last line break: none if the stream ended with a
   * complete row, as a complete stream does.
   */
  rest(): Buffer {
    return this.#carried.length === 1 && this.#carried[0] !== undefined
      ? this.#carried[0]
      : Buffer.concat(this.#carried, this.#carriedBytes);
  }

  #endRow(chunk: Buffer, rowStart: number, lineFeed: number): void {
    if (this.#carriedBytes === 0) {
      this.#check(lineFeed - rowStart);
      this.#onRow(
        chunk,
        rowStart,
        lineEnd(chunk, rowStart, lineFeed),
        lineFeed + 1,
      );
      return;
    }
    this.#carry(chunk.subarray(0, lineFeed + 1));
    const row = this.rest();
    this.#carried = [];
    this.#carriedBytes = 0;
    this.#onRow(row, 0, lineEnd(row, 0, row.length - 1), row.length);
  }

  #carry(piece: Buffer): void {
    if (piece.length === 0) return;
    this.#carried.push(piece);
    this.#carriedBytes += piece.length;
    this.#check(this.#carriedBytes);
    // A long row may arrive in many tiny chunks. Join them now and then to keep the
    // list short.
    if (this.#carried.length >= 1024) this.#carried = [this.rest()];
  }

  #check(rowBytes: number): void {
    if (rowBytes <= this.#rowBytesMax) return;
    throw new PermanentError(
      `Cannot read the CSV: a row is longer than ${this.#rowBytesMax} bytes; the ` +
        'source sent something else, or left a quote open',
      {
        code: 'ROW_TOO_LARGE',
        meta: { rowBytes, rowBytesMax: this.#rowBytesMax },
      },
    );
  }
}

function lineEnd(buffer: Buffer, rowStart: number, lineFeed: number): number {
  return lineFeed > rowStart && buffer[lineFeed - 1] === CARRIAGE_RETURN
    ? lineFeed - 1
    : lineFeed;
}
