/** Names, types and meanings of the columns in the lake's tables, in field id order. */
import { isAmountColumn } from '../../ledger/canonical.ts';
import { KNOWN_COLUMNS } from '../../ledger/header.ts';

export interface LakeColumn {
  readonly name: string;
  /** The type's name in DuckDB. */
  readonly type: string;
  readonly comment: string;
  /**
   * DuckDB expression that computes the value. Without it, the value is the input column
   * of the same name.
   */
  readonly from?: string;
}

/** Returns the SELECT list that computes the columns from their input. */
export function selected(columns: readonly LakeColumn[]): string {
  return columns
    .map(({ name, from }) => (from === undefined ? name : `${from} as ${name}`))
    .join(', ');
}

/** Returns the SELECT list that reads the columns from a file that already has them. */
export function namesOf(columns: readonly LakeColumn[]): string {
  return columns.map(({ name }) => name).join(', ');
}

/**
 * Whether statistics are written for the column. Amounts have none, because some readers
 * parse statistics as floating-point numbers, lose digits, and then skip files that
 * contain matching rows.
 */
export function hasStatistics({ type }: LakeColumn): boolean {
  return !type.startsWith('DECIMAL') && type !== 'BOOLEAN';
}

export const AMOUNT = 'DECIMAL(38,0)';
export const TIME = 'TIMESTAMP WITH TIME ZONE';
export const SUMMARY_TABLES = [
  'daily_flows',
  'monthly_fees',
  'monthly_balances',
  'monthly_activity',
] as const;
export type SummaryTable = (typeof SUMMARY_TABLES)[number];
export const LAKE_TABLES = [
  'ledger_entries',
  'parties',
  'checkpoints',
  'coverage',
  ...SUMMARY_TABLES,
] as const;
export type LakeTable = (typeof LAKE_TABLES)[number];

export const plain = (
  name: string,
  type: string,
  comment: string,
): LakeColumn => ({
  name,
  type,
  comment,
});
export const text = (name: string, comment: string): LakeColumn =>
  plain(name, 'VARCHAR', comment);
/** A column whose value is computed by an expression. */
const computed = (column: LakeColumn, from: string): LakeColumn => ({
  ...column,
  from,
});
/** A column that the warehouse sends as text. */
const cast = (name: string, type: string, comment: string): LakeColumn =>
  computed(plain(name, type, comment), `cast(${name} as ${type})`);
/** A timestamp, which the warehouse sends as wall-clock time in UTC. */
const time = (name: string, comment: string): LakeColumn =>
  cast(name, TIME, comment);
/**
 * Casts in two steps, via HUGEINT, because DuckDB takes hundreds of times longer to cast
 * text directly to DECIMAL.
 */
const decimal = (name: string): string =>
  `try_cast(try_cast(${name} as HUGEINT) as ${AMOUNT})`;
/**
 * Two columns: the amount, and its text form if it has more digits than a DECIMAL can
 * store.
 */
export const amount = (
  name: string,
  comment: string,
  digits = name,
): readonly LakeColumn[] => [
  computed(plain(name, AMOUNT, comment), decimal(digits)),
  computed(
    text(
      `${name}_text`,
      `The value if it has more than 38 digits, in which case ${name} is NULL`,
    ),
    `case when ${decimal(digits)} is null then ${digits} end`,
  ),
];

const MEANINGS: Readonly<Record<(typeof KNOWN_COLUMNS)[number], string>> = {
  vega_time:
    'Time of the block, UTC, exact to the microsecond; entries in one block have ' +
    'no order',
  quantity: "Amount moved, in the asset's smallest unit; never negative",
  effect:
    'Effect on party_id: +quantity, -quantity, or 0 if the party is on both sides; ' +
    'NULL for releases that send one side',
  transfer_type: 'Why it moved: DEPOSIT, MTM_LOSS, …',
  asset_id: 'Lower-case hex',
  account_from_market_id:
    'Market of the sending account; NULL if it belongs to none',
  account_from_party_id:
    "Owner of the sending account; network for the network's own",
  account_from_account_type: 'GENERAL, MARGIN, …',
  account_from_balance:
    'Balance of the sending account after the entry, smallest unit',
  account_to_market_id:
    'Market of the receiving account; NULL if it belongs to none',
  account_to_party_id: 'Owner of the receiving account',
  account_to_account_type: 'GENERAL, MARGIN, …',
  account_to_balance:
    'Balance of the receiving account after the entry, smallest unit',
};

const known = KNOWN_COLUMNS.flatMap((name): readonly LakeColumn[] => {
  if (name === 'vega_time') return [time(name, MEANINGS[name])];
  return isAmountColumn(name)
    ? amount(name, MEANINGS[name])
    : [text(name, MEANINGS[name])];
});

/** Which side of the entry the exported party is on, determined from the row alone. */
const SIDE = `case when account_from_party_id = party_id and account_to_party_id = party_id then 'both'
  when account_from_party_id = party_id then 'from' when account_to_party_id = party_id then 'to' else 'none' end`;

export const ENTRIES: readonly LakeColumn[] = [
  text('party_id', 'The party whose export contains the row'),
  ...known,
  text('extra', 'Columns that this version does not know, as JSON'),
  cast('segment_id', 'BIGINT', 'The exported segment that contains it'),
  computed(
    text(
      'side',
      'Which side of the entry party_id is on: from, to, both or none',
    ),
    SIDE,
  ),
];

export const PARTIES: readonly LakeColumn[] = [
  text(
    'party_id',
    'As listed by the source: lower-case hex, or a word such as network',
  ),
  time('first_seen_at', 'When the mirror first saw it'),
  text('extra', 'List fields that this version does not know, as JSON'),
];

export const CHECKPOINTS: readonly LakeColumn[] = [
  cast('epoch', 'INTEGER', "Incremented whenever the source's chain restarts"),
  cast('at_block', 'DECIMAL(20,0)', 'Height'),
  text('hash', 'State hash, lower-case hex'),
  text('block_hash', 'Lower-case hex'),
  time('first_seen_at', 'When the mirror first saw it'),
  text('extra', 'List fields that this version does not know, as JSON'),
];

export const COVERAGE: readonly LakeColumn[] = [
  text('party_id', 'The party whose ledger is loaded in this range'),
  text('asset_id', 'The asset; NULL means every asset'),
  time('from_time', 'Inclusive'),
  time('to_time', 'Exclusive'),
  cast(
    'both_sides',
    'BOOLEAN',
    'Whether the release also sent what the party receives',
  ),
];
