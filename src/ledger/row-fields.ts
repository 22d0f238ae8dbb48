/**
 * Splits a CSV row into fields: the row is decoded to one string, and each field is a
 * slice of it.
 */
const QUOTE = '"';
const NOT_ASCII = /[\u0080-\u00ff]/;

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
 * Returns the position after the quote that closes the quote at `opening`, or the row's
 * end if there is no closing quote.
 */
function closingQuote(row: string, opening: number): number {
  let quote = row.indexOf(QUOTE, opening + 1);
  while (quote !== -1 && row[quote + 1] === QUOTE)
    quote = row.indexOf(QUOTE, quote + 2);
  return quote === -1 ? row.length : quote + 1;
}
