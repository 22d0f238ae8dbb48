/** Where the fields of a CSV row lie, found in one pass and without making strings of them. */
const COMMA = 0x2c;
const QUOTE = 0x22;

/**
 * Marks the fields of one row at a time; the marks hold until the next `scan`. A quoted field is a
 * field that begins with a quote; a comma or line end inside it belongs to it.
 */
export class RowFields {
  #buffer: Buffer = Buffer.alloc(0);
  #starts = new Int32Array(64);
  #ends = new Int32Array(64);
  #count = 0;

  /** @returns how many fields the row has (an empty row has one empty field) */
  scan(buffer: Buffer, start: number, end: number): number {
    this.#buffer = buffer;
    let count = 0;
    let fieldStart = start;
    let position = start;
    for (;;) {
      if (position < end && buffer[position] === QUOTE) position = closingQuote(buffer, position, end);
      while (position < end && buffer[position] !== COMMA) position += 1;
      if (count === this.#starts.length) this.#grow();
      this.#starts[count] = fieldStart;
      this.#ends[count] = position;
      count += 1;
      if (position >= end) break;
      position += 1;
      fieldStart = position;
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

  #isQuoted(index: number): boolean {
    const start = this.#starts[index] ?? 0;
    return (this.#ends[index] ?? 0) - start >= 2 && this.#buffer[start] === QUOTE;
  }

  #grow(): void {
    const [starts, ends] = [this.#starts, this.#ends];
    this.#starts = new Int32Array(starts.length * 2);
    this.#ends = new Int32Array(ends.length * 2);
    this.#starts.set(starts);
    this.#ends.set(ends);
  }
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
