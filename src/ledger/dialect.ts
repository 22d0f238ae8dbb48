/**
 * A source that writes another CSV than the public service. Its lines are rewritten into that service's columns and
 * spellings as they arrive, before anything of them is checked: behind this file there is only one CSV.
 */
import { PermanentError, RetryableError } from '../core/errors.ts';
import { effectOf } from './canonical.ts';
import { decodeId, decodeInteger } from './encodings.ts';
import { gluedError } from './answer/glued-error.ts';
import { KNOWN_COLUMNS, type KnownColumn } from './header.ts';
import { RowFields } from './row-fields.ts';
import { RowSplitter } from './row-splitter.ts';

export type TimeFormat = 'rfc3339' | 'utc' | 's' | 'ms' | 'us' | 'ns';
export type IdFormat = 'hex' | '0x' | 'base64';

export interface CsvDialect {
  /** What the source calls a column; null: it has none. Those that are not here have their own names. */
  readonly columns: ReadonlyMap<KnownColumn, string | null>;
  /** One character. */
  readonly delimiter: string;
  readonly times: TimeFormat;
  readonly ids: IdFormat;
  /** Of every row, where the CSV has no column of assets and none was asked for. */
  readonly assetId?: string | undefined;
}

/** Whose export it is. */
export interface AskedFor {
  readonly partyId: string;
  readonly assetId?: string | undefined;
}

/** Without them there is no ledger; the others may be missing. */
const NEEDED: readonly KnownColumn[] = ['vega_time', 'quantity', 'asset_id', 'account_from_party_id'];
/** Of a source that tells no times. */
const NO_TIME = '1970-01-01 00:00:00+00';
const NO_TRANSFER_TYPE = 'UNSPECIFIED';
const UTC_TIME = /^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?$/;
const UNIX_TIME = /^(\d{1,20})(?:\.(\d{1,9}))?$/;
const FRACTION_DIGITS = { s: 0, ms: 3, us: 6, ns: 9 } as const;
const BASE64_ID = /^[\w+/-]{43}=?$/;
const REMEMBERED_MAX = 4_096;

export function hasTimes({ columns }: CsvDialect): boolean {
  return columns.get('vega_time') !== null;
}

/**
 * @param chunks the source's CSV, cut anywhere
 * @throws PermanentError `COLUMNS_MISSING`; RetryableError `ROW_FIELDS`, or the error that is glued to a row
 */
export async function* translated(
  chunks: AsyncIterable<Buffer>,
  dialect: CsvDialect,
  asked: AskedFor,
): AsyncGenerator<Buffer, void, undefined> {
  const fields = new RowFields(dialect.delimiter);
  const lines: string[] = [];
  let rows: RowTranslator | undefined;
  let number = 0;
  const splitter = new RowSplitter((buffer, start, end, next) => {
    const lineEnd = buffer.toString('latin1', end, next);
    if (start === end) {
      lines.push(lineEnd);
      return;
    }
    const count = fields.scan(buffer, start, end);
    if (rows === undefined) {
      const failed = gluedError(buffer.subarray(start, end), 0n);
      if (failed !== undefined) throw failed;
      rows = new RowTranslator(fields, dialect, asked);
      lines.push(rows.header(), lineEnd);
      return;
    }
    number += 1;
    if (count !== rows.count) {
      throw gluedError(buffer.subarray(start, end), 0n) ?? unreadable(number, count, rows.count);
    }
    lines.push(rows.row(), lineEnd);
  });
  for await (const chunk of chunks) {
    splitter.push(chunk);
    if (lines.length > 0) yield Buffer.from(lines.splice(0).join(''), 'latin1');
  }
  // Whether a last line without its end is a row is for the reader of rows to say: nothing is lost on the way there.
  const rest = splitter.rest();
  if (rest.length === 0) return;
  const count = fields.scan(rest, 0, rest.length);
  if (rows === undefined) yield headerOf(fields, dialect, asked) ?? rest;
  else yield count === rows.count ? Buffer.from(rows.row(), 'latin1') : rest;
}

/** Of a line without its end: undefined where that is no header, or not all of one. */
function headerOf(fields: RowFields, dialect: CsvDialect, asked: AskedFor): Buffer | undefined {
  try {
    return Buffer.from(new RowTranslator(fields, dialect, asked).header(), 'latin1');
  } catch (error) {
    if (error instanceof PermanentError) return undefined;
    throw error;
  }
}

function unreadable(number: number, count: number, wanted: number): RetryableError {
  return new RetryableError(
    `Cannot export: row ${number} has ${count} fields where the header has ${wanted}; nothing was published, ask again`,
    { code: 'ROW_FIELDS', meta: { row: number } },
  );
}

type Write = () => string;

/** Text is read and written as latin1, which keeps every byte. */
class RowTranslator {
  readonly count: number;
  readonly #fields: RowFields;
  readonly #dialect: CsvDialect;
  readonly #asked: AskedFor;
  readonly #places = new Map<KnownColumn, number>();
  readonly #unknown: readonly number[];
  readonly #writes: readonly Write[];
  readonly #isComma: boolean;
  readonly #ids = new Map<string, string>();

  /** @param fields of the header */
  constructor(fields: RowFields, dialect: CsvDialect, asked: AskedFor) {
    const names = fields.texts();
    this.count = names.length;
    this.#fields = fields;
    this.#dialect = dialect;
    this.#asked = asked;
    this.#isComma = dialect.delimiter === ',';
    for (const column of KNOWN_COLUMNS) {
      const theirs = dialect.columns.get(column);
      const at = theirs === null ? -1 : names.indexOf(theirs ?? column);
      if (at !== -1) this.#places.set(column, at);
      const isNeeded = NEEDED.includes(column) || (theirs !== undefined && theirs !== null);
      if (at === -1 && isNeeded && theirs !== null) throw missing(column, theirs ?? column, names);
    }
    const taken = new Set(this.#places.values());
    this.#unknown = names.flatMap((_, at) => (taken.has(at) ? [] : [at]));
    this.#writes = KNOWN_COLUMNS.map((column) => this.#writer(column));
  }

  /** Of the header that was scanned last. */
  header(): string {
    return [...KNOWN_COLUMNS, ...this.#unknown.map((at) => this.#raw(at))].join(',');
  }

  /** Of the row that was scanned last. */
  row(): string {
    let line = '';
    for (const [at, write] of this.#writes.entries()) line += at === 0 ? write() : `,${write()}`;
    for (const at of this.#unknown) line += `,${this.#raw(at)}`;
    return line;
  }

  #writer(column: KnownColumn): Write {
    const at = this.#places.get(column);
    if (column === 'effect' && at === undefined) return () => this.#effect();
    if (at === undefined) {
      const text = this.#default(column);
      return () => text;
    }
    if (column === 'vega_time')
      return this.#dialect.times === 'rfc3339' ? () => this.#raw(at) : () => this.#time(at);
    const isId = column.endsWith('_id') && this.#dialect.ids !== 'hex';
    return isId ? () => this.#id(at) : () => this.#raw(at);
  }

  /** Of a column that the CSV does not have. */
  #default(column: KnownColumn): string {
    if (column === 'vega_time') return NO_TIME;
    if (column === 'transfer_type') return NO_TRANSFER_TYPE;
    if (column === 'asset_id') return this.#asked.assetId ?? this.#dialect.assetId ?? '';
    // A CSV without parties is all of the party that was asked for.
    const isAlone = column === 'account_from_party_id' && !this.#places.has('account_to_party_id');
    return isAlone ? this.#asked.partyId : '';
  }

  #raw(at: number): string {
    const text = this.#fields.raw(at);
    // Between semicolons a comma needs no quotes.
    return this.#isComma || text.startsWith('"') || !text.includes(',')
      ? text
      : `"${text.replaceAll('"', '""')}"`;
  }

  /** Empty where it is none, which is refused as a row without a time. */
  #time(at: number): string {
    const text = this.#fields.text(at) ?? '';
    const { times } = this.#dialect;
    if (times === 'utc') return UTC_TIME.test(text) ? `${text}+00` : '';
    return times === 'rfc3339' ? text : unixTime(text, FRACTION_DIGITS[times]);
  }

  /** In a spelling that is not the one that was set, it goes on as it is, and is refused where it is none. */
  #id(at: number): string {
    const text = this.#fields.text(at) ?? '';
    const known = this.#ids.get(text);
    if (known !== undefined) return known;
    if (this.#ids.size >= REMEMBERED_MAX) this.#ids.clear();
    const id = idText(text, this.#dialect.ids);
    this.#ids.set(text, id);
    return id;
  }

  /** As the releases say it that have the column. */
  #effect(): string {
    const party = (column: KnownColumn): string => {
      const at = this.#places.get(column);
      return decodeId(at === undefined ? this.#default(column) : this.#id(at)) ?? '';
    };
    const quantity = decodeInteger(this.#fields.text(this.#places.get('quantity') ?? 0) ?? '') ?? '';
    const [from, to] = [party('account_from_party_id'), party('account_to_party_id')];
    return effectOf(this.#asked.partyId, quantity, from, to) ?? '';
  }
}

function idText(text: string, ids: IdFormat): string {
  if (ids === '0x') return /^0x/i.test(text) ? text.slice(2) : text;
  return ids === 'base64' && BASE64_ID.test(text) ? Buffer.from(text, 'base64').toString('hex') : text;
}

/** A count since 1970 as the service writes a time; no digit of it is lost. */
function unixTime(text: string, fractionDigits: number): string {
  const [, whole = '', fraction = ''] = UNIX_TIME.exec(text) ?? [];
  if (whole === '') return '';
  const digits = whole.padStart(fractionDigits + 1, '0');
  const date = new Date(Number(digits.slice(0, digits.length - fractionDigits)) * 1000);
  if (Number.isNaN(date.getTime()) || date.getUTCFullYear() > 9999) return '';
  const below = (digits.slice(digits.length - fractionDigits, digits.length) + fraction).slice(0, 9);
  const part = fractionDigits === 0 ? fraction : below;
  return `${date.toISOString().slice(0, 19).replace('T', ' ')}${part === '' ? '' : `.${part}`}+00`;
}

function missing(column: KnownColumn, theirs: string, names: readonly string[]): PermanentError {
  const shown = names.join(', ').slice(0, 200);
  return new PermanentError(
    `Cannot read the ledger export: it has no column ${theirs}, only ${shown}; name the one for ${column} in EXPORT_COLUMNS, or say ${column}=none`,
    { code: 'COLUMNS_MISSING', meta: { column, columns: names.slice(0, 256) } },
  );
}
