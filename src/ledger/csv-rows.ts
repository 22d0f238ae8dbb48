/**
 * Splits a stream of CSV bytes into rows, wherever its chunks begin and end, and a row
 * into fields. Rows are passed on as positions in a buffer, without copying; only a row
 * that spans several chunks is joined. A row whose fields are needed is decoded to one
 * string, and each field is a slice of it.
 */
import { PermanentError } from '../errors/errors.ts';

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const QUOTE_BYTE = 0x22;
const QUOTE = '"';
const NOT_ASCII = /[\u0080-\u00ff]/;
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
    let quote = this.#isQuoted ? -1 : chunk.indexOf(QUOTE_BYTE);
    for (;;) {
      if (this.#isQuoted) {
        const closing = chunk.indexOf(QUOTE_BYTE, from);
        if (closing === -1) break;
        this.#isQuoted = false;
        from = closing + 1;
        quote = chunk.indexOf(QUOTE_BYTE, from);
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
      `Cannot read the CSV: a row is longer than ${this.#rowBytesMax} ` +
        'bytes; the source sent something else, or did not close a quote',
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

/**
 * Rewrites each row, and keeps its line break. Strings are latin1, which preserves
 * every byte.
 * @returns the bytes after the last line break
 */
export async function* rewriteRows(
  chunks: AsyncIterable<Buffer>,
  rewrite: (buffer: Buffer, start: number, end: number) => string,
): AsyncGenerator<Buffer, Buffer, undefined> {
  const rows: string[] = [];
  const splitter = new RowSplitter((buffer, start, end, next) => {
    rows.push(
      rewrite(buffer, start, end),
      buffer.toString('latin1', end, next),
    );
  });
  for await (const chunk of chunks) {
    splitter.push(chunk);
    if (rows.length > 0) yield Buffer.from(rows.splice(0).join(''), 'latin1');
  }
  return splitter.rest();
}

/**
 * Finds the fields of one row at a time; they are valid until the next `scan`. A field
 * that begins with a quote is quoted; delimiters and line breaks inside it belong to
 * it.
 */
export class RowFields {
  /** The row as it was sent, with each byte as a character. */
  row = '';
  count = 0;
  /** The end position of each field. */
  readonly #ends: number[] = [];
  readonly #delimiter: string;

  /** @param delimiter one ASCII character */
  constructor(delimiter = ',') {
    this.#delimiter = delimiter;
  }

  /**
   * Scans a row.
   * @returns the number of fields (an empty row has one empty field)
   */
  scan(buffer: Buffer, start: number, end: number): number {
    const row = buffer.toString('latin1', start, end);
    this.row = row;
    this.count = 0;
    for (let from = 0; from !== -1;) {
      const behind = row[from] === QUOTE ? closingQuote(row, from) : from;
      const found = row.indexOf(this.#delimiter, behind);
      this.#ends[this.count] = found === -1 ? row.length : found;
      this.count += 1;
      from = found === -1 ? -1 : found + 1;
    }
    return this.count;
  }

  /** Returns the field as it was sent, with each byte as a character. */
  raw(index: number): string {
    return this.row.slice(
      index === 0 ? 0 : (this.#ends[index - 1] ?? 0) + 1,
      this.#ends[index],
    );
  }

  /** Returns the field without its outer quotes; quotes inside it stay doubled. */
  cell(index: number): string {
    const raw = this.raw(index);
    return isQuoted(raw) ? raw.slice(1, -1) : raw;
  }

  /** Returns the field's value. Both an unquoted empty field (NULL) and `""` are ''. */
  text(index: number): string {
    const raw = this.raw(index);
    return isQuoted(raw) ? cellText(raw.slice(1, -1)) : toText(raw);
  }

  /** Returns all values of the row. */
  texts(): string[] {
    return Array.from({ length: this.count }, (_, index) => this.text(index));
  }
}

/**
 * Returns the value of a cell whose bytes were read as latin1 and whose quotes are still
 * doubled.
 */
export function cellText(cell: string): string {
  const text = toText(cell);
  return text.includes(QUOTE) ? text.replaceAll('""', '"') : text;
}

function toText(cell: string): string {
  return NOT_ASCII.test(cell)
    ? Buffer.from(cell, 'latin1').toString('utf8')
    : cell;
}

function isQuoted(raw: string): boolean {
  return raw.length >= 2 && raw.startsWith(QUOTE);
}

/**
 * Returns the position after the quote that closes the one at `opening`, or the end of
 * the row if the quote is never closed.
 */
function closingQuote(row: string, opening: number): number {
  let quote = row.indexOf(QUOTE, opening + 1);
  while (quote !== -1 && row[quote + 1] === QUOTE)
    quote = row.indexOf(QUOTE, quote + 2);
  return quote === -1 ? row.length : quote + 1;
}
