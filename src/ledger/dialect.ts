/**
 * A source that writes another CSV than the public service. Its lines are rewritten into
 * that service's columns and spellings as they arrive, before anything of them is
 * checked: behind this file there is only one CSV.
 */
import { PermanentError, RetryableError } from '../errors/errors.ts';
import { effectOf, remember } from './canonical.ts';
import { rewriteRows } from './common-columns.ts';
import { decodeId, decodeInteger } from './encodings.ts';
import { gluedError } from './answer/error-body.ts';
import { KNOWN_COLUMNS, type KnownColumn } from './header.ts';
import { RowFields } from './row-fields.ts';

export type TimeFormat = 'rfc3339' | 'utc' | 's' | 'ms' | 'us' | 'ns';
export type IdFormat = 'hex' | '0x' | 'base64';

export interface CsvDialect {
  /**
   * What the source calls a column; null: it has none. Those that are not here have their
   * own names.
   */
  readonly columns: ReadonlyMap<KnownColumn, string | null>;
  /** One character. */
  readonly delimiter: string;
  readonly times: TimeFormat;
  readonly ids: IdFormat;
  /** Of every row, where the CSV has no column of assets and none was asked for. */
  readonly assetId?: string | undefined;
}

/** The party and the asset that an export asked for. */
export interface AskedFor {
  readonly partyId: string;
  readonly assetId?: string | undefined;
}

/** Without them there is no ledger; the others may be missing. */
const NEEDED: readonly KnownColumn[] = [
  'vega_time',
  'quantity',
  'asset_id',
  'account_from_party_id',
];
/** The time of every row of a source that shows no times. */
const NO_TIME = '1970-01-01 00:00:00+00';
const NO_TRANSFER_TYPE = 'UNSPECIFIED';
const UTC_TIME = /^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?$/;
const UNIX_TIME = /^(\d{1,20})(?:\.(\d{1,9}))?$/;
const FRACTION_DIGITS = { s: 0, ms: 3, us: 6, ns: 9 } as const;
const BASE64_ID = /^[\w+/-]{43}=?$/;

export function hasTimes({ columns }: CsvDialect): boolean {
  return columns.get('vega_time') !== null;
}

/**
 * @param chunks the source's CSV, cut anywhere
 * @throws PermanentError `COLUMNS_MISSING`; RetryableError `ROW_FIELDS`, or the error
 *   that is glued to a row
 */
export async function* translated(
  chunks: AsyncIterable<Buffer>,
  dialect: CsvDialect,
  asked: AskedFor,
): AsyncGenerator<Buffer, void, undefined> {
  const fields = new RowFields(dialect.delimiter);
  let rows: ReturnType<typeof translate> | undefined;
  let number = 0;
  const rest = yield* rewriteRows(chunks, (buffer, start, end) => {
    if (start === end) return '';
    const count = fields.scan(buffer, start, end);
    const failed =
      count === rows?.count
        ? undefined
        : gluedError(buffer.subarray(start, end), 0n);
    if (failed !== undefined) throw failed;
    if (rows === undefined) {
      rows = translate(fields, dialect, asked);
      return rows.header;
    }
    number += 1;
    if (count === rows.count) return rows.row();
    throw new RetryableError(
      `Cannot export: row ${number} has ${count} fields where the header has ` +
        `${rows.count}; nothing was published, ask again`,
      { code: 'ROW_FIELDS', meta: { row: number } },
    );
  });
  // Whether a last line without its end is a row is for the reader of rows to say:
  // nothing is lost on the way there.
  if (rest.length === 0) return;
  const count = fields.scan(rest, 0, rest.length);
  if (rows === undefined) yield headerOf(fields, dialect, asked) ?? rest;
  else yield count === rows.count ? Buffer.from(rows.row(), 'latin1') : rest;
}

/**
 * Reads a header from a line without its end.
 * @returns undefined if the line is not a header, or not all of one
 */
function headerOf(
  fields: RowFields,
  dialect: CsvDialect,
  asked: AskedFor,
): Buffer | undefined {
  try {
    return Buffer.from(translate(fields, dialect, asked).header, 'latin1');
  } catch (error) {
    if (error instanceof PermanentError) return undefined;
    throw error;
  }
}

/** @param fields of the header, and later of each row */
function translate(fields: RowFields, dialect: CsvDialect, asked: AskedFor) {
  const { times } = dialect;
  const names = fields.texts();
  const places = placeColumns(names, dialect);
  const taken = new Set(places.values());
  const unknown = names.flatMap((_, at) => (taken.has(at) ? [] : [at]));

  const raw = (at: number): string => {
    const text = fields.raw(at);
    // Between semicolons a comma needs no quotes.
    return dialect.delimiter === ',' ||
      text.startsWith('"') ||
      !text.includes(',')
      ? text
      : `"${text.replaceAll('"', '""')}"`;
  };
  const id = remember((written) => idText(written, dialect.ids));
  /** The values of columns that the CSV does not have. */
  const missing: Readonly<Partial<Record<KnownColumn, string | undefined>>> = {
    vega_time: NO_TIME,
    transfer_type: NO_TRANSFER_TYPE,
    asset_id: asked.assetId ?? dialect.assetId,
    // A CSV without parties is all of the party that was asked for.
    account_from_party_id: places.has('account_to_party_id')
      ? undefined
      : asked.partyId,
  };
  /** As the releases say it that have the column. */
  const effect = (): string => {
    const [from, to] = (
      ['account_from_party_id', 'account_to_party_id'] as const
    ).map((column) => {
      const at = places.get(column);
      return (
        decodeId(
          at === undefined ? (missing[column] ?? '') : id(fields.text(at)),
        ) ?? ''
      );
    });
    const quantity =
      decodeInteger(fields.text(places.get('quantity') ?? 0)) ?? '';
    return effectOf(asked.partyId, quantity, from ?? '', to ?? '') ?? '';
  };
  const writes = KNOWN_COLUMNS.map((column): (() => string) => {
    const at = places.get(column);
    if (at === undefined)
      return column === 'effect' ? effect : () => missing[column] ?? '';
    if (column === 'vega_time' && times !== 'rfc3339')
      return () => timeText(fields.text(at), times);
    return column.endsWith('_id') && dialect.ids !== 'hex'
      ? () => id(fields.text(at))
      : () => raw(at);
  });
  for (const at of unknown) writes.push(() => raw(at));
  return {
    /** How many fields a row has. */
    count: names.length,
    header: [...KNOWN_COLUMNS, ...unknown.map(raw)].join(','),
    /**
     * The row that `fields` has scanned last. Text is read and written as latin1, which
     * keeps every byte.
     */
    row: () => writes.map((write) => write()).join(','),
  };
}

/** Where each known column stands. @throws PermanentError `COLUMNS_MISSING` */
function placeColumns(
  names: readonly string[],
  { columns }: CsvDialect,
): ReadonlyMap<KnownColumn, number> {
  const places = new Map<KnownColumn, number>();
  for (const column of KNOWN_COLUMNS) {
    const theirs = columns.get(column);
    if (theirs === null) continue;
    const at = names.indexOf(theirs ?? column);
    if (at !== -1) places.set(column, at);
    else if (NEEDED.includes(column) || theirs !== undefined)
      throw missingColumn(column, theirs ?? column, names);
  }
  return places;
}

/**
 * In a spelling that is not the one that was set, it goes on as it is, and is refused
 * where it is none.
 */
function idText(text: string, ids: IdFormat): string {
  if (ids === '0x') return /^0x/i.test(text) ? text.slice(2) : text;
  return ids === 'base64' && BASE64_ID.test(text)
    ? Buffer.from(text, 'base64').toString('hex')
    : text;
}

/**
 * Empty where it is none, which is refused as a row without a time. No digit of it is
 * lost.
 */
function timeText(text: string, times: Exclude<TimeFormat, 'rfc3339'>): string {
  if (times === 'utc') return UTC_TIME.test(text) ? `${text}+00` : '';
  const fractionDigits = FRACTION_DIGITS[times];
  const [, whole = '', fraction = ''] = UNIX_TIME.exec(text) ?? [];
  if (whole === '') return '';
  const digits = whole.padStart(fractionDigits + 1, '0');
  const date = new Date(
    Number(digits.slice(0, digits.length - fractionDigits)) * 1000,
  );
  if (Number.isNaN(date.getTime()) || date.getUTCFullYear() > 9999) return '';
  const below = (
    digits.slice(digits.length - fractionDigits, digits.length) + fraction
  ).slice(0, 9);
  const part = fractionDigits === 0 ? fraction : below;
  return `${date.toISOString().slice(0, 19).replace('T', ' ')}${part === '' ? '' : `.${part}`}+00`;
}

function missingColumn(
  column: KnownColumn,
  theirs: string,
  names: readonly string[],
): PermanentError {
  const shown = names.join(', ').slice(0, 200);
  return new PermanentError(
    `Cannot read the ledger export: it has no column ${theirs}, only ${shown}; ` +
      `name the one for ${column} in EXPORT_COLUMNS, or say ${column}=none`,
    { code: 'COLUMNS_MISSING', meta: { column, columns: names.slice(0, 256) } },
  );
}
