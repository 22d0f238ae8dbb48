/**
 * The canonical row (row form `values-v1`): what a line of the CSV says, apart from how
 * the source's release wrote it. Its text is what `values_digest` sums, so the same rows
 * have the same sum whether they are read from objects, the warehouse or the lake.
 */
import { PermanentError } from '../errors/errors.ts';
import { formatInstant, parseInstant } from '../time/time.ts';
import {
  decodeAccountType,
  decodeId,
  decodeInteger,
  decodePartyId,
  decodeTransferType,
} from './encodings.ts';
import {
  COLUMN_KINDS,
  type ColumnKind,
  KNOWN_COLUMNS,
  type KnownColumn,
  type Layout,
} from './header.ts';
import { cellText, type RowFields } from './row-fields.ts';

/** The columns that make an entry; `effect` follows from them and is kept beside them. */
export type EntryColumn = Exclude<KnownColumn, 'effect'>;

/** In the order in which they are summed. */
export const ENTRY_COLUMNS: readonly EntryColumn[] = KNOWN_COLUMNS.filter(
  (name) => name !== 'effect',
);

/** The columns of the lines that the loader writes, as COPY reads them. */
export const LINE_COLUMNS: readonly string[] = [
  'party_id',
  'segment_id',
  'extra',
  'effect',
  ...ENTRY_COLUMNS,
];

type Decode = (text: string) => string | undefined;

/** How a column's text is read. */
export const DECODERS: Readonly<Record<ColumnKind, Decode>> = {
  time: decodeTime,
  amount: decodeInteger,
  transfer: decodeTransferType,
  id: decodeId,
  party: decodePartyId,
  account: decodeAccountType,
};

/** What the values of a column are; undefined of one that nobody knows. */
export function kindOf(name: string): ColumnKind | undefined {
  return Object.hasOwn(COLUMN_KINDS, name)
    ? COLUMN_KINDS[name as KnownColumn]
    : undefined;
}

/**
 * The columns whose values are parties: any printable text, where the source gives ids of
 * its own.
 */
export function isPartyColumn(name: string): boolean {
  return kindOf(name) === 'party';
}

/** Columns of whole numbers, whatever their size. */
export function isAmountColumn(name: string): boolean {
  return kindOf(name) === 'amount';
}

/** Without them there is no entry. */
export const REQUIRED_VALUES: ReadonlySet<string> = new Set<EntryColumn>([
  'vega_time',
  'quantity',
  'transfer_type',
  'asset_id',
]);
/** Times, ids and types come again and again; amounts seldom do. */
const REMEMBERED_MAX = 4096;

const SHOWN_CHARACTERS_MAX = 80;
const VALUE_SEPARATOR = '\u001f';
const EXTRA_SEPARATOR = '\u001e';
/**
 * Postgres keeps no NUL in JSON; the separators would make two rows look like one
 * another.
 */
const FORBIDDEN_IN_EXTRA = ['\u0000', VALUE_SEPARATOR, EXTRA_SEPARATOR];

/** Reads the value of an unknown column: any text that can be stored. */
export function decodeExtra(text: string): string | undefined {
  return FORBIDDEN_IN_EXTRA.some((character) => text.includes(character))
    ? undefined
    : text;
}

/** A column that nobody knew, and its text. */
export type ExtraValue = readonly [name: string, text: string];

export interface CanonicalRow {
  /** In the order of ENTRY_COLUMNS; '' where the entry has none. */
  readonly values: readonly string[];
  /** '' where the release does not send it. */
  readonly effect: string;
  /** Sorted by name. */
  readonly extra: readonly ExtraValue[];
}

const [QUANTITY, FROM_PARTY, TO_PARTY] = (
  ['quantity', 'account_from_party_id', 'account_to_party_id'] as const
).map((name) => ENTRY_COLUMNS.indexOf(name)) as [number, number, number];

/**
 * What an entry does to a party, as releases from 0.71.6 say it in `effect`: `quantity`
 * with the sign of its direction, 0 where the party is on both sides; undefined where it
 * is on neither.
 */
export function effectOn(
  partyId: string,
  values: readonly string[],
): string | undefined {
  return effectOf(
    partyId,
    values[QUANTITY] ?? '',
    values[FROM_PARTY] ?? '',
    values[TO_PARTY] ?? '',
  );
}

export function effectOf(
  partyId: string,
  quantity: string,
  from: string,
  to: string,
): string | undefined {
  const isFrom = from === partyId;
  const isTo = to === partyId;
  if (isFrom && isTo) return '0';
  if (isTo) return quantity;
  if (!isFrom) return undefined;
  return quantity === '0' ? '0' : `-${quantity}`;
}

/** `2023-05`: the partition that a row belongs to. */
export function monthOf(values: readonly string[]): string {
  return (values[0] ?? '').slice(0, 'YYYY-MM'.length);
}

/** The text that is summed. No value can hold a separator: each matched its pattern. */
export function canonicalText(
  values: readonly string[],
  extra: readonly ExtraValue[],
): string {
  const text = values.join(VALUE_SEPARATOR);
  if (extra.length === 0) return text;
  return (
    text +
    extra
      .map(([name, value]) => EXTRA_SEPARATOR + name + VALUE_SEPARATOR + value)
      .join('')
  );
}

/** Extra values from stored JSON (`extra` of a row) in the order that is summed. */
export function extraFromJson(json: string): readonly ExtraValue[] {
  const parsed: unknown = JSON.parse(json);
  if (typeof parsed !== 'object' || parsed === null) return [];
  return sortExtra(
    Object.entries(parsed).map(([name, value]): ExtraValue => [
      name,
      String(value),
    ]),
  );
}

function sortExtra(extra: ExtraValue[]): ExtraValue[] {
  return extra.toSorted(([a], [b]) => (a < b ? -1 : 1));
}

/** Finer than the warehouse's microseconds. */
const NANOSECONDS = /(\.\d{6})\d{1,3}(?!\d)/;

/** Any instant → RFC 3339 in UTC with six digits. */
export function decodeTime(text: string): string | undefined {
  const instant = parseInstant(text.replace(NANOSECONDS, '$1'));
  return instant === undefined ? undefined : formatInstant(instant);
}

/**
 * Made once a file, from its header. Known values but parties are ASCII; a byte beyond it
 * fails its pattern.
 * @returns reads the row that `fields` has scanned last, and throws PermanentError
 *   `BAD_VALUE` with the column and the beginning of its text
 */
export function openRowReader({
  index,
  unknown,
}: Layout): (fields: RowFields) => CanonicalRow {
  const decoders = ENTRY_COLUMNS.map(
    (name) => [name, cellDecoder(COLUMN_KINDS[name])] as const,
  );
  const extras = unknown.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  return (fields) => ({
    values: decoders.map(([name, decode]) =>
      readValue(name, fields.cell(index[name]), decode),
    ),
    effect:
      index.effect === undefined
        ? ''
        : readValue('effect', fields.text(index.effect), decodeInteger),
    extra: extras.map(
      ({ name, index: at }) =>
        [name, readValue(name, fields.text(at), decodeExtra)] as const,
    ),
  });
}

function readValue(column: string, text: string, decode: Decode): string {
  const value = decode(text);
  if (value !== undefined && (value !== '' || !REQUIRED_VALUES.has(column)))
    return value;
  const shown = JSON.stringify(text.slice(0, SHOWN_CHARACTERS_MAX));
  throw new PermanentError(
    `Cannot read a ledger row: ${column} is ${shown}, which no known release writes`,
    {
      code: 'BAD_VALUE',
      meta: { column, text: shown },
    },
  );
}

function cellDecoder(kind: ColumnKind): Decode {
  const decode = DECODERS[kind];
  if (kind === 'amount') return decode;
  return remember(kind === 'party' ? (cell) => decode(cellText(cell)) : decode);
}

/** Remembers what texts mean; forgets everything when full, so that memory stays flat. */
export function remember<Value extends string | undefined>(
  decode: (text: string) => Value,
): (text: string) => Value {
  const known = new Map<string, Value>();
  return (text) => {
    const remembered = known.get(text);
    if (remembered !== undefined) return remembered;
    const value = decode(text);
    if (value === undefined) return value;
    if (known.size >= REMEMBERED_MAX) known.clear();
    known.set(text, value);
    return value;
  };
}
