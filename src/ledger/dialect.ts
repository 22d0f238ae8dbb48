/**
 * Translates the CSV of a source whose format differs from the public service's. Lines
 * are rewritten to the public service's columns and formats as they arrive, before
 * anything is checked, so that all later code sees only one kind of CSV.
 */
import { PermanentError, RetryableError } from '../errors/errors.ts';
import { effectOf, remember } from './canonical.ts';
import { rewriteRows } from './csv-rows.ts';
import { decodeId, decodeInteger } from './encodings.ts';
import { gluedError } from './answer/error-body.ts';
import { KNOWN_COLUMNS, type KnownColumn } from './header.ts';
import { RowFields } from './csv-rows.ts';

export type TimeFormat = 'rfc3339' | 'utc' | 's' | 'ms' | 'us' | 'ns';
export type IdFormat = 'hex' | '0x' | 'base64';

export interface CsvDialect {
  /**
   * The source's name for each column; null if the source does not have it. A column
   * that is not in the map has its usual name.
   */
  readonly columns: ReadonlyMap<KnownColumn, string | null>;
  /** The delimiter, a single character. */
  readonly delimiter: string;
  readonly times: TimeFormat;
  readonly ids: IdFormat;
  /**
   * The asset of every row if the CSV has no asset column and the export did not
   * request an asset.
   */
  readonly assetId?: string | undefined;
}

/** The party and the asset that an export requested. */
export interface AskedFor {
  readonly partyId: string;
  readonly assetId?: string | undefined;
}

/** The columns that a ledger must have; all others may be missing. */
const NEEDED: readonly KnownColumn[] = [
  'vega_time',
  'quantity',
  'asset_id',
  'account_from_party_id',
];
/** The time of every row, if the source has no times. */
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
 * Translates the source's CSV.
 * @param chunks the source's CSV; a chunk may end anywhere
 * @throws PermanentError `COLUMNS_MISSING`; RetryableError `ROW_FIELDS`, or the error
 *   that the source appended to a row
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
        `${rows.count}; nothing was published; request it again`,
      { code: 'ROW_FIELDS', meta: { row: number } },
    );
  });
  // The code that reads the rows decides whether a final line without a line break is a
  // row, so pass the line on.
  if (rest.length === 0) return;
  const count = fields.scan(rest, 0, rest.length);
  if (rows === undefined) yield headerOf(fields, dialect, asked) ?? rest;
  else yield count === rows.count ? Buffer.from(rows.row(), 'latin1') : rest;
}

/**
 * Translates a header from a line that has no line break.
 * @returns undefined if the line is not a header, or is only part of one
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

/**
 * Prepares the translation of rows.
 * @param fields must have scanned the header, and scans each row later
 */
function translate(fields: RowFields, dialect: CsvDialect, asked: AskedFor) {
  const { times } = dialect;
  const names = fields.texts();
  const places = placeColumns(names, dialect);
  const taken = new Set(places.values());
  const unknown = names.flatMap((_, at) => (taken.has(at) ? [] : [at]));

  const raw = (at: number): string => {
    const text = fields.raw(at);
    // If the delimiter is a semicolon, a field with a comma may be unquoted.
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
    // A CSV without party columns contains only the requested party's entries.
    account_from_party_id: places.has('account_to_party_id')
      ? undefined
      : asked.partyId,
  };
  /** Computes `effect` the same way as the releases that have this column. */
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
    /** The number of fields in a row. */
    count: names.length,
    header: [...KNOWN_COLUMNS, ...unknown.map(raw)].join(','),
    /**
     * Translates the row that `fields` scanned last. Strings are read and written as
     * latin1, which preserves every byte.
     */
    row: () => writes.map((write) => write()).join(','),
  };
}

/**
 * Finds the position of each known column.
 * @throws PermanentError `COLUMNS_MISSING`
 */
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
 * Converts an id to hex. An id that is not in the configured format is returned
 * unchanged, and is rejected later if it is not an id at all.
 */
function idText(text: string, ids: IdFormat): string {
  if (ids === '0x') return /^0x/i.test(text) ? text.slice(2) : text;
  return ids === 'base64' && BASE64_ID.test(text)
    ? Buffer.from(text, 'base64').toString('hex')
    : text;
}

/**
 * Converts a time without losing a digit. The result is empty if the string is not a
 * time; the row is then rejected later because it has no time.
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
