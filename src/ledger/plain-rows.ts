/**
 * Reads rows by their bytes. Nearly all rows of an answer are plain: no quote in them,
 * digits where amounts belong, a day, a zone, ids and types that came before. Such a row
 * is decided here without a string for it or for any of its cells; any other row is left
 * to the reader of texts, which is the one that defines what a row says.
 */
import type { VegaTimeReader } from './vega-time.ts';

const COMMA = 0x2c;
const QUOTE = 0x22;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
/** A longer row may have a number of more digits than loading takes. */
export const PLAIN_ROW_MAX = 1000;
/** Columns have a few hundred values, in a block of rows a few dozen. */
const KNOWN_CELLS = 256;

/** What a row's cells say together; each cell adds its part. */
export const NOT_PLAIN = -1;
export const IS_FROM = 1;
export const IS_TO = 2;
export const IS_ASSET = 4;

/**
 * How a column is read: by its bytes alone, or by what its text means.
 * @param decide gets a cell without quotes, each byte as a character; returns what it
 *   adds to the row, or NOT_PLAIN if its row has to be read as text
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
  /** The block that the last row lies in. A view of it reads four bytes at once. */
  #buffer: Uint8Array | undefined;
  #block: DataView = new DataView(new ArrayBuffer(0));

  /** @param time reads the row's time; it holds that of the last row that was plain */
  constructor(columns: readonly PlainColumn[], time: VegaTimeReader) {
    this.#time = time;
    this.#columns = columns.map((column) =>
      column.kind === 'text'
        ? { kind: 'text', cells: new KnownCells(column.decide) }
        : column,
    );
  }

  /**
   * @returns the sum of what its cells add, or NOT_PLAIN: then nothing is known of it
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

/** @returns the position behind an amount, or NOT_PLAIN */
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

/** @returns the position behind a text of a column that nobody knew, or NOT_PLAIN */
function extraEnd(block: DataView, from: number, end: number): number {
  let at = from;
  while (at < end) {
    const byte = block.getUint8(at);
    if (byte === COMMA) break;
    // Control characters, some of which cannot be stored.
    if (byte === QUOTE || byte < 0x20) return NOT_PLAIN;
    at += 1;
  }
  return at;
}

interface KnownCell {
  readonly bytes: number;
  /** Four bytes each, and behind them the last bytes one by one. */
  readonly words: Int32Array;
  readonly rest: Uint8Array;
  /** What it adds to a row. */
  readonly found: number;
}

/** The cells of a column that were decided before. */
class KnownCells {
  /** What the cell that was read last adds to its row. */
  found = 0;
  readonly #decide: (cell: string) => number;
  readonly #cells: (KnownCell | undefined)[] = [];
  /** Cells repeat from row to row. */
  #last: KnownCell | undefined;

  constructor(decide: (cell: string) => number) {
    this.#decide = decide;
  }

  /** @returns the position behind the cell, or NOT_PLAIN; `found` is set then */
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
    // Copies: the block that the cell came in is given back.
    const words = new Int32Array(bytes.length >> 2);
    for (let word = 0; word < words.length; word += 1)
      words[word] = bytes.readInt32LE(word * 4);
    const rest = Uint8Array.from(bytes.subarray(words.length * 4));
    return { bytes: bytes.length, words, rest, found };
  }
}

/** Whether a known cell lies at a place of a block, which has room for it. */
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
