/**
 * Reads rows directly from their bytes. Nearly all rows of a response are plain: they
 * have no quotes, amounts are digits, and the day, time zone, ids and types have
 * occurred before. This reader handles such a row without creating a string for it or
 * for any of its cells. Any other row is left to the text reader, which defines what a
 * row means.
 */
import type { VegaTimeReader } from './vega-time.ts';

const COMMA = 0x2c;
const QUOTE = 0x22;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
/**
 * Maximum size of a row that is read directly from its bytes. A longer one may have a
 * number with more digits than the loader accepts.
 */
export const PLAIN_ROW_MAX = 1000;
/**
 * Size of a column's cell cache. A column has a few hundred different values, but only
 * a few dozen within a block of rows.
 */
const KNOWN_CELLS = 256;

/** The flags of a row. Each cell adds its own. */
export const NOT_PLAIN = -1;
export const IS_FROM = 1;
export const IS_TO = 2;
export const IS_ASSET = 4;

/**
 * How a column is read: from its bytes alone, or by what its text means.
 * @param decide receives a cell without quotes, each byte as a character; returns the
 *   flags that the cell adds to its row, or NOT_PLAIN if the row must be read as text
 */
export type PlainColumn =
  | { readonly kind: 'time' | 'extra' }
  | { readonly kind: 'amount'; readonly isRequired: boolean }
  | { readonly kind: 'text'; readonly decide: (cell: string) => number };

type ByteColumn =
  | Exclude<PlainColumn, { kind: 'text' }>
  | { readonly kind: 'text'; readonly cells: KnownCells };

export class PlainRows {
  readonly #columns: readonly ByteColumn[];
  readonly #time: VegaTimeReader;
  /**
   * The block that contains the last row, and a view of it that reads four bytes at
   * once.
   */
  #buffer: Uint8Array | undefined;
  #block: DataView = new DataView(new ArrayBuffer(0));

  /**
   * Creates a reader.
   * @param time reads the time of each row; afterwards it holds the time of the last
   *   plain row
   */
  constructor(columns: readonly PlainColumn[], time: VegaTimeReader) {
    this.#time = time;
    this.#columns = columns.map((column) =>
      column.kind === 'text'
        ? { kind: 'text', cells: new KnownCells(column.decide) }
        : column,
    );
  }

  /**
   * Reads one row.
   * @returns the combined flags of all cells, or NOT_PLAIN if the row must be read as
   *   text
   */
  read(buffer: Uint8Array, start: number, end: number): number {
    if (end - start > PLAIN_ROW_MAX) return NOT_PLAIN;
    const block = this.#blockOf(buffer);
    const last = this.#columns.length - 1;
    let found = 0;
    let from = start;
    for (let index = 0; index <= last; index += 1) {
      const column = this.#columns[index];
      if (column === undefined) return NOT_PLAIN;
      let to: number;
      if (column.kind === 'text') {
        const { cells } = column;
        to = cells.read(block, from, end);
        found |= cells.found;
      } else if (column.kind === 'amount')
        to = amountEnd(block, from, end, column.isRequired);
      else if (column.kind === 'time')
        to = this.#time.readAgain(block, from, end);
      else to = extraEnd(block, from, end);
      if (to === NOT_PLAIN) return NOT_PLAIN;
      const isEnd = to === end;
      if (isEnd !== (index === last)) return NOT_PLAIN;
      if (!isEnd && block.getUint8(to) !== COMMA) return NOT_PLAIN;
      from = to + 1;
    }
    return found;
  }

  #blockOf(buffer: Uint8Array): DataView {
    if (buffer === this.#buffer) return this.#block;
    this.#buffer = buffer;
    this.#block = new DataView(
      buffer.buffer,
      buffer.byteOffset,
      buffer.byteLength,
    );
    return this.#block;
  }
}

/**
 * Skips an amount.
 * @returns the position after it, or NOT_PLAIN
 */
function amountEnd(
  block: DataView,
  from: number,
  end: number,
  isRequired: boolean,
): number {
  const digits = from < end && block.getUint8(from) === MINUS ? from + 1 : from;
  let at = digits;
  while (at < end) {
    const byte = block.getUint8(at);
    if (byte < ZERO || byte > NINE) break;
    at += 1;
  }
  if (at > digits) return at;
  return isRequired || digits > from ? NOT_PLAIN : at;
}

/**
 * Skips the text of an unknown column.
 * @returns the position after it, or NOT_PLAIN
 */
function extraEnd(block: DataView, from: number, end: number): number {
  let at = from;
  while (at < end) {
    const byte = block.getUint8(at);
    if (byte === COMMA) break;
    // Quotes need the text reader, and some control characters cannot be stored.
    if (byte === QUOTE || byte < 0x20) return NOT_PLAIN;
    at += 1;
  }
  return at;
}

interface KnownCell {
  readonly bytes: number;
  /** The cell's bytes in groups of four; `rest` contains the remaining bytes. */
  readonly words: Int32Array;
  readonly rest: Uint8Array;
  /** The flags that the cell adds to its row. */
  readonly found: number;
}

/** Caches the cells of a column whose flags have already been determined. */
class KnownCells {
  /** The flags that the last cell adds to its row. */
  found = 0;
  readonly #decide: (cell: string) => number;
  readonly #cells: (KnownCell | undefined)[] = [];
  /** The last cell read, kept as a cache because cells often repeat from row to row. */
  #last: KnownCell | undefined;

  constructor(decide: (cell: string) => number) {
    this.#decide = decide;
  }

  /**
   * Reads one cell and sets `found`.
   * @returns the position after the cell, or NOT_PLAIN
   */
  read(block: DataView, from: number, end: number): number {
    const last = this.#last;
    if (last !== undefined) {
      const behind = from + last.bytes;
      const isCell =
        behind < end ? block.getUint8(behind) === COMMA : behind === end;
      if (isCell && isAt(last, block, from)) return behind;
    }
    return this.#lookUp(block, from, end);
  }

  #lookUp(block: DataView, from: number, end: number): number {
    let hash = 0;
    let at = from;
    while (at < end) {
      const byte = block.getUint8(at);
      if (byte === COMMA) break;
      if (byte === QUOTE) return NOT_PLAIN;
      hash = (Math.imul(hash, 31) + byte) | 0;
      at += 1;
    }
    const place = (hash ^ (hash >>> 15)) & (KNOWN_CELLS - 1);
    const known = this.#cells[place];
    const isKnown =
      known !== undefined &&
      known.bytes === at - from &&
      isAt(known, block, from);
    const cell = isKnown ? known : this.#learn(block, from, at);
    if (cell === undefined) return NOT_PLAIN;
    this.#cells[place] = cell;
    this.#last = cell;
    this.found = cell.found;
    return at;
  }

  #learn(block: DataView, from: number, to: number): KnownCell | undefined {
    const bytes = Buffer.from(block.buffer, block.byteOffset + from, to - from);
    const found = this.#decide(bytes.toString('latin1'));
    if (found === NOT_PLAIN) return undefined;
    // The cell is copied, because its block is reused later.
    const words = new Int32Array(bytes.length >> 2);
    for (let word = 0; word < words.length; word += 1)
      words[word] = bytes.readInt32LE(word * 4);
    const rest = Uint8Array.from(bytes.subarray(words.length * 4));
    return { bytes: bytes.length, words, rest, found };
  }
}

/**
 * Whether a known cell is found at a position in a block. The block must be long enough
 * to hold it there.
 */
function isAt(
  { words, rest }: KnownCell,
  block: DataView,
  from: number,
): boolean {
  let at = from;
  for (let word = 0; word < words.length; word += 1) {
    if (words[word] !== block.getInt32(at, true)) return false;
    at += 4;
  }
  for (let byte = 0; byte < rest.length; byte += 1) {
    if (rest[byte] !== block.getUint8(at)) return false;
    at += 1;
  }
  return true;
}
