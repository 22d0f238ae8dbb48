/** CSV as two known releases write it, and as others might. */
import { effectOf, SECOND, writeInstant, type Entry } from './ledger.ts';

export interface Layout {
  readonly columns: readonly string[];
  /** Fields that differ from the plain spelling, by column. */
  readonly write: Readonly<
    Record<string, (entry: Entry, party: string, at: number) => string>
  >;
  readonly delimiter: string;
  readonly lineEnd: string;
  readonly isQuoted: boolean;
}

const HEX_COLUMNS = [
  'asset_id',
  'account_from_market_id',
  'account_from_party_id',
  'account_to_market_id',
  'account_to_party_id',
];
const ACCOUNT_NUMBERS: Readonly<Record<string, number>> = {
  INSURANCE: 1,
  MARGIN: 3,
  GENERAL: 4,
  BOND: 9,
  EXTERNAL: 10,
};

/** As CSV has it: only where it must be. */
const quote = (text: string): string =>
  /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;

type Write = (entry: Entry, party: string, at: number) => string;

const PLAIN_FIELDS: Readonly<Record<string, Write>> = {
  vega_time: (entry) => writeTime(entry.time),
  quantity: (entry) => entry.quantity,
  effect: (entry, party) => effectOf(entry, party),
  transfer_type: (entry) => `TRANSFER_TYPE_${entry.transfer}`,
  asset_id: (entry) => entry.asset,
  account_from_market_id: (entry) => entry.from.market || '""',
  account_from_party_id: (entry) => quote(entry.from.party),
  account_from_account_type: (entry) => entry.from.account,
  account_from_balance: (entry) => entry.from.balance,
  account_to_market_id: (entry) => entry.to.market || '""',
  account_to_party_id: (entry) => quote(entry.to.party),
  account_to_account_type: (entry) => entry.to.account,
  account_to_balance: (entry) => entry.to.balance,
};

/** Thirteen columns: rows of both sides, ids as hex, kinds of accounts by name. */
export const THIRTEEN: Layout = {
  columns: Object.keys(PLAIN_FIELDS),
  write: PLAIN_FIELDS,
  delimiter: ',',
  lineEnd: '\n',
  isQuoted: false,
};

const bytea = (id: string): string => (id === 'network' ? '\\x03' : `\\x${id}`);

const TWELVE_COLUMNS =
  'vega_time,quantity,transfer_type,asset_id,account_from_market_id,account_from_party_id,account_from_account_type,' +
  'account_to_market_id,account_to_party_id,account_to_account_type,account_from_balance,account_to_balance';

/**
 * Twelve columns: rows of the from side, ids as bytes, kinds of accounts by number,
 * balances last.
 */
export const TWELVE: Layout = {
  ...THIRTEEN,
  columns: TWELVE_COLUMNS.split(','),
  write: {
    ...PLAIN_FIELDS,
    asset_id: (entry) => bytea(entry.asset),
    account_from_market_id: (entry) => bytea(entry.from.market),
    account_from_party_id: (entry) => bytea(entry.from.party),
    account_to_market_id: (entry) => bytea(entry.to.market),
    account_to_party_id: (entry) => bytea(entry.to.party),
    account_from_account_type: (entry) =>
      String(ACCOUNT_NUMBERS[entry.from.account]),
    account_to_account_type: (entry) =>
      String(ACCOUNT_NUMBERS[entry.to.account]),
  },
};

/** The layout with other fields or other columns. */
export function change(
  layout: Layout,
  write: Layout['write'],
  rest: Partial<Layout> = {},
): Layout {
  return { ...layout, ...rest, write: { ...layout.write, ...write } };
}

/** The same layout, one column under another name. */
export function rename(layout: Layout, from: string, to: string): Layout {
  const write = layout.write[from];
  if (write === undefined)
    throw new Error(`Cannot rename ${from}: there is no such column`);
  return {
    ...layout,
    columns: layout.columns.map((name) => (name === from ? to : name)),
    write: { ...layout.write, [to]: write },
  };
}

export function changeIds(
  layout: Layout,
  spell: (id: string) => string,
): Layout {
  const write = HEX_COLUMNS.map((column): [string, Write] => {
    const plain = PLAIN_FIELDS[column] ?? (() => '');
    return [column, (entry, party, at) => spell(plain(entry, party, at))];
  });
  return change(layout, Object.fromEntries(write));
}

export function writeHeader(layout: Layout): string {
  return writeLine(layout, [...layout.columns]);
}

export function writeRow(
  layout: Layout,
  entry: Entry,
  party: string,
  at = 0,
): string {
  const fields = layout.columns.map(
    (column) => layout.write[column]?.(entry, party, at) ?? '',
  );
  return writeLine(layout, fields);
}

function writeLine(layout: Layout, fields: readonly string[]): string {
  const shown = layout.isQuoted
    ? fields.map((field) => (field.startsWith('"') ? field : `"${field}"`))
    : fields;
  return shown.join(layout.delimiter) + layout.lineEnd;
}

export function writeCsv(
  layout: Layout,
  entries: readonly Entry[],
  party: string,
): string {
  return (
    writeHeader(layout) +
    entries.map((entry, at) => writeRow(layout, entry, party, at)).join('')
  );
}

/**
 * As the database writes it: a space, the fraction without trailing zeros, a short zone.
 */
function writeTime(time: bigint): string {
  const [day = '', clock = ''] = writeInstant(time).split('T');
  const fraction =
    time % SECOND === 0n ? '' : `.${clock.slice(9, 15).replace(/0+$/, '')}`;
  return `${day} ${clock.slice(0, 8)}${fraction}+00`;
}

/** The same instant on the clock of another zone. */
export function writeZoned(
  time: bigint,
  offsetMinutes: number,
  zone: string,
  digits = 6,
): string {
  const local = writeInstant(time + BigInt(offsetMinutes) * 60n * SECOND);
  const fraction = `${local.slice(20, 26)}000`.slice(0, digits);
  return `${local.slice(0, 10)} ${local.slice(11, 19)}${digits > 0 ? '.' : ''}${fraction}${zone}`;
}
