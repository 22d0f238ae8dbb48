/** Where the fields of a CSV row lie, found in one pass and without making strings of them. */
const QUOTE = 0x22;
/** A word is four bytes, read together. */
const WORD_BYTES = 4;
const LOW_BITS = 0x01010101;
const HIGH_BITS = 0x80808080;

const BACKSLASH = 0x5c;
const LOWER_CASE = 0x20202020;

/** An id of 64 hex digits as its bytes are read, four at a time. */
export function idWords(id: string): Int32Array {
  const bytes = Buffer.from(id);
  return Int32Array.from(
    { length: bytes.length / WORD_BYTES },
    (_, index) => bytes.readInt32LE(index * WORD_BYTES) | LOWER_CASE,
  );
}

/**
 * Marks the fields of one row at a time; the marks hold until the next `scan`. A quoted field is a
 * field that begins with a quote; a delimiter or line end inside it belongs to it.
 */
export class RowFields {
  #buffer: Buffer = Buffer.alloc(0);
  #words = new DataView(this.#buffer.buffer);
  #starts = new Int32Array(64);
  #ends = new Int32Array(64);
  #count = 0;
  readonly #delimiter: number;

  /** @param delimiter one ASCII character */
  constructor(delimiter = ',') {
    this.#delimiter = delimiter.charCodeAt(0);
  }

  /** @returns how many fields the row has (an empty row has one empty field) */
  scan(buffer: Buffer, start: number, end: number): number {
    if (buffer !== this.#buffer) this.#open(buffer);
    let count = 0;
    let fieldStart = start;
    for (;;) {
      const isQuoted = fieldStart < end && buffer[fieldStart] === QUOTE;
      const from = isQuoted ? closingQuote(buffer, fieldStart, end) : fieldStart;
      const position = nextDelimiter(buffer, this.#words, this.#delimiter, from, end);
      if (count === this.#starts.length) this.#grow();
      this.#starts[count] = fieldStart;
      this.#ends[count] = position;
      count += 1;
      if (position >= end) break;
      fieldStart = position + 1;
    }
    this.#count = count;
    return count;
  }

  get count(): number {
    return this.#count;
  }

  /** Where field `index` begins in the scanned buffer, its quote left out. */
  start(index: number): number {
    const start = this.#starts[index] ?? 0;
    return this.#isQuoted(index) ? start + 1 : start;
  }

  /** Where it ends (exclusive), its quote left out. Doubled quotes inside stay doubled. */
  end(index: number): number {
    const end = this.#ends[index] ?? 0;
    return this.#isQuoted(index) ? end - 1 : end;
  }

  /** As it was sent, each byte as a character. */
  raw(index: number): string {
    return this.#buffer.toString('latin1', this.#starts[index], this.#ends[index]);
  }

  /** The field's value; undefined where there is no such field. Unquoted empty (NULL) and `""` both read as ''. */
  text(index: number): string | undefined {
    if (index >= this.#count) return undefined;
    const text = this.#buffer.toString('utf8', this.start(index), this.end(index));
    return this.#isQuoted(index) ? text.replaceAll('""', '"') : text;
  }

  /** All values of the row. */
  texts(): string[] {
    return Array.from({ length: this.#count }, (_, index) => this.text(index) ?? '');
  }

  /**
   * Whether a field is this id: releases write it as `\\x` and hex, or plain, in either case.
   * @param id see `idWords`
   */
  holds(index: number, id: Int32Array): boolean {
    let position = this.start(index);
    if (this.#buffer[position] === BACKSLASH) position += 2;
    if (this.end(index) - position !== id.length * WORD_BYTES) return false;
    for (let at = 0; at < id.length; at += 1, position += WORD_BYTES) {
      if ((this.#words.getInt32(position, true) | LOWER_CASE) !== id[at]) return false;
    }
    return true;
  }

  #isQuoted(index: number): boolean {
    const start = this.#starts[index] ?? 0;
    return (this.#ends[index] ?? 0) - start >= 2 && this.#buffer[start] === QUOTE;
  }

  #open(buffer: Buffer): void {
    this.#buffer = buffer;
    this.#words = new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  }

  #grow(): void {
    const [starts, ends] = [this.#starts, this.#ends];
    this.#starts = new Int32Array(starts.length * 2);
    this.#ends = new Int32Array(ends.length * 2);
    this.#starts.set(starts);
    this.#ends.set(ends);
  }
}

/** The position of the first delimiter from here on; `end` where there is none. */
function nextDelimiter(
  buffer: Buffer,
  words: DataView,
  delimiter: number,
  from: number,
  end: number,
): number {
  const delimiters = delimiter * LOW_BITS;
  let position = from;
  for (const last = end - WORD_BYTES; position <= last; position += WORD_BYTES) {
    const others = words.getInt32(position, true) ^ delimiters;
    // Only of a zero byte, which was a delimiter, and perhaps of ones above it, does the high bit remain.
    const found = (others - LOW_BITS) & ~others & HIGH_BITS;
    if (found !== 0) return position + ((31 - Math.clz32(found & -found)) >>> 3);
  }
  while (position < end && buffer[position] !== delimiter) position += 1;
  return position;
}

/** The position behind the quote that closes the one at `opening`; `end` where none does. */
function closingQuote(buffer: Buffer, opening: number, end: number): number {
  let position = opening + 1;
  while (position < end) {
    if (buffer[position] !== QUOTE) position += 1;
    else if (position + 1 < end && buffer[position + 1] === QUOTE) position += 2;
    else return position + 1;
  }
  return end;
}
