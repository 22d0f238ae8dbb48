/**
 * How a release writes the values of a CSV: from what the warehouse keeps back to the bytes that the source sent. Nothing
 * is assumed of a release: while a segment is loaded, every row is written again and compared with what was read.
 */
import { type CanonicalRow, ENTRY_COLUMNS } from './canonical.ts';
import { ACCOUNT_TYPES, WORD_OF_BYTE } from './encodings.ts';
import { COLUMN_KINDS, type ColumnKind, type KnownColumn, type Layout } from './header.ts';
import type { RowFields } from './row-fields.ts';

type Write = (value: string) => string;

const BYTE_OF_WORD: ReadonlyMap<string, string> = new Map(
  [...WORD_OF_BYTE].map(([byte, word]) => [word, byte]),
);
const NUMBER_OF_TYPE: ReadonlyMap<string, string> = new Map(
  [...ACCOUNT_TYPES].map(([number, name]) => [name, String(number)]),
);
const LINE_FEED = 0x0a;
const ZERO = 0x30;

function prefixed(prefix: string): Write {
  return (value) => (value.startsWith('#') ? value.slice(1) : value === '' ? '' : prefix + value);
}

function quoted(write: Write): Write {
  return (value) => (value === '' ? '""' : write(value));
}

/** From `2023-05-01T10:00:00.500000Z`. */
function time(separator: string, zone: string, isTrimmed: boolean): Write {
  return (value) => {
    let end = 26;
    if (isTrimmed) while (value.charCodeAt(end - 1) === ZERO) end -= 1;
    // Without a fraction there is no point either.
    return `${value.slice(0, 10)}${separator}${value.slice(11, end === 20 ? 19 : end)}${zone}`;
  };
}

const plain: Write = (value) => value;
const bytes: Write = (value) => `\\x${BYTE_OF_WORD.get(value) ?? value}`;
const numbered: Write = (value) =>
  NUMBER_OF_TYPE.get(value) ?? (value.startsWith('#') ? value.slice(1) : value);

const IDS = { plain, quoted: quoted(plain), bytes };

/** Which ways to write a value there are, by name. */
const WAYS: Readonly<Record<ColumnKind, Readonly<Record<string, Write>>>> = {
  time: {
    trimmed: time(' ', '+00', true),
    micros: time(' ', '+00', false),
    'trimmed-z': time('T', 'Z', true),
    'micros-z': time('T', 'Z', false),
  },
  amount: { plain, quoted: quoted(plain) },
  id: IDS,
  party: IDS,
  transfer: { long: prefixed('TRANSFER_TYPE_'), short: prefixed('') },
  account: {
    number: numbered,
    short: prefixed(''),
    long: prefixed('ACCOUNT_TYPE_'),
    quoted: quoted(prefixed('')),
  },
};

interface Cell {
  readonly index: number;
  /** In ENTRY_COLUMNS; undefined: the effect. */
  readonly place: number | undefined;
  /** Reading an integer only leaves characters out: one that is as long as its text is written as it is. */
  readonly isInteger: boolean;
  ways: [name: string, write: Write][];
  lastValue: string | undefined;
  lastText: string;
}

/** Looks for the ways in which all rows of one CSV are written. */
export class SpellingProof {
  readonly #cells: readonly Cell[];
  #isLost: boolean;

  constructor(layout: Layout) {
    this.#isLost = layout.unknown.length > 0;
    const columns = Object.entries(layout.index) as [KnownColumn, number][];
    this.#cells = columns.map(([name, index]) => {
      const kind = COLUMN_KINDS[name];
      const place = name === 'effect' ? undefined : ENTRY_COLUMNS.indexOf(name);
      const ways = Object.entries(WAYS[kind]);
      return { index, place, isInteger: kind === 'amount', ways, lastValue: undefined, lastText: '' };
    });
  }

  /** The row `buffer[start, end)`, which `fields` has scanned last, and what was read of it. */
  see({ values, effect }: CanonicalRow, fields: RowFields, buffer: Buffer, start: number, end: number): void {
    if (this.#isLost) return;
    if (buffer[end] !== LINE_FEED) {
      this.#isLost = true;
      return;
    }
    // One text for all: a call for each field costs more than reading the row did.
    const row = buffer.toString('latin1', start, end);
    for (const cell of this.#cells) {
      const from = fields.rawStart(cell.index);
      const to = fields.rawEnd(cell.index);
      const value = cell.place === undefined ? effect : (values[cell.place] ?? '');
      if (cell.isInteger && value !== '' && to - from === value.length) continue;
      const text = row.slice(from - start, to - start);
      if (value === cell.lastValue && text === cell.lastText) continue;
      cell.lastValue = value;
      cell.lastText = text;
      if (cell.ways.length === 1 && cell.ways[0]?.[1](value) === text) continue;
      cell.ways = cell.ways.filter(([, write]) => write(value) === text);
      this.#isLost ||= cell.ways.length === 0;
    }
  }

  /** The name of a way for each column, in the order of the columns; undefined where some row is written otherwise. */
  found(): readonly string[] | undefined {
    if (this.#isLost) return undefined;
    return this.#cells
      .toSorted((one, other) => one.index - other.index)
      .map(({ ways }) => ways[0]?.[0] ?? '');
  }
}

/** Writes rows as the source did. */
export class Speller {
  readonly #columns: readonly { readonly name: KnownColumn; readonly write: Write }[];

  /** @param spelling what `SpellingProof` found for these columns */
  constructor(columns: readonly string[], spelling: readonly string[]) {
    this.#columns = columns.map((column, index) => {
      const name = column as KnownColumn;
      const write = WAYS[COLUMN_KINDS[name]][spelling[index] ?? ''];
      if (write === undefined) throw new RangeError(`no way to write ${column}: ${spelling[index]}`);
      return { name, write };
    });
  }

  /** With its line end. @param row canonical values by column */
  line(row: Readonly<Record<KnownColumn, string>>): string {
    return `${this.#columns.map(({ name, write }) => write(row[name])).join(',')}\n`;
  }
}
