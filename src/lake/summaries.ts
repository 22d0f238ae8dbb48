/**
 * Summaries of each month's entries, published beside them and rebuilt with them: what the ready questions
 * ask of whole months. Each is one SELECT over entries, so a part of a month can be summed up the same way,
 * and a summary can be compared with its entries at any time.
 */
import type { MonthRange } from './month-range.ts';
import { AMOUNT, decimal, entriesOf, type LakeColumn, literal, selected, text, TIME } from './tables.ts';

export const SUMMARY_TABLES = [
  'daily_flows',
  'monthly_fees',
  'monthly_balances',
  'monthly_activity',
] as const;
export type SummaryTable = (typeof SUMMARY_TABLES)[number];

/** Written into the manifest. To be raised with any change of what a summary holds: months are then rebuilt. */
export const SUMMARY_FORM = 1;

interface SummaryShape {
  readonly columns: readonly LakeColumn[];
  /** @param entries what stands behind FROM: rows as `ledger_entries` has them, of one month */
  readonly select: (entries: string) => string;
}

const count = (name: string): LakeColumn => ({ name, type: 'BIGINT' });
const time = (name: string): LakeColumn => ({ name, type: TIME });
/** Names the sum to the last digit that `select` leaves as a BIGNUM. */
const sum = (name: string): readonly LakeColumn[] => {
  const digits = `cast(${name} as VARCHAR)`;
  return [
    { name, type: AMOUNT, from: decimal(digits) },
    {
      name: `${name}_text`,
      type: 'VARCHAR',
      from: `case when ${decimal(digits)} is null then ${digits} end`,
    },
  ];
};
const amount = (name: string): readonly LakeColumn[] => [{ name, type: AMOUNT }, text(`${name}_text`)];

const exactSum = (name: string, condition = 'true'): string =>
  `exact_sum(case when ${condition} then ${name} end, case when ${condition} then ${name}_text end)`;

const ACCOUNT = ['party_id', 'asset_id', 'account_type', 'market_id'] as const;

function side(name: 'from' | 'to', entries: string): string {
  const account = `account_${name}`;
  return `select ${account}_party_id as party_id, asset_id, ${account}_account_type as account_type,
      ${account}_market_id as market_id, vega_time, ${account}_balance as balance, ${account}_balance_text as balance_text
    from ${entries}
   where is_counted and (${account}_balance is not null or ${account}_balance_text is not null)`;
}

/** Entries of one block have no order: where the last block of an account leaves several balances, all are kept. */
function lastBalances(entries: string): string {
  const keys = ACCOUNT.join(', ');
  const isSame = ACCOUNT.map((key) => `known.${key} is not distinct from latest.${key}`).join(' and ');
  // Time first: it alone leaves few rows, and costs less to compare than ids.
  return `with known as not materialized (${side('from', entries)} union all ${side('to', entries)}),
  latest as materialized (select ${keys}, max(vega_time) as as_of from known group by ${keys})
  select distinct known.* rename (vega_time as as_of)
    from known join latest on known.vega_time = latest.as_of and ${isSame}`;
}

export const SUMMARIES: Readonly<Record<SummaryTable, SummaryShape>> = {
  daily_flows: {
    columns: [
      { name: 'day', type: 'DATE' },
      text('asset_id'),
      text('transfer_type'),
      count('entries'),
      ...sum('quantity'),
    ],
    // UTC's day, without a calendar of zones, which takes thrice as long.
    select: (
      entries,
    ) => `select cast(make_timestamp(epoch_us(vega_time)) as date) as day, asset_id, transfer_type, count(*) as entries,
      ${exactSum('quantity')} as quantity
    from ${entries} where is_counted group by 1, 2, 3`,
  },
  monthly_fees: {
    columns: [text('party_id'), text('asset_id'), text('transfer_type'), count('payments'), ...sum('paid')],
    select: (entries) => `select account_from_party_id as party_id, asset_id, transfer_type,
      count(*) as payments, ${exactSum('quantity')} as paid
    from ${entries} where is_counted and transfer_type like '%\\_FEE\\_PAY' escape '\\' group by 1, 2, 3`,
  },
  monthly_balances: {
    columns: [...ACCOUNT.map(text), time('as_of'), ...amount('balance')],
    select: lastBalances,
  },
  monthly_activity: {
    columns: [
      text('party_id'),
      text('asset_id'),
      count('entries'),
      ...sum('sent'),
      ...sum('received'),
      time('last_at'),
    ],
    select: (entries) => `select party_id, asset_id, count(*) as entries,
      ${exactSum('quantity', 'account_from_party_id = party_id')} as sent,
      ${exactSum('quantity', 'account_to_party_id = party_id')} as received, max(vega_time) as last_at
    from ${entries} group by 1, 2`,
  },
};

/** The summary of `entries`, which is what stands behind FROM, with the columns of its file. */
export function summaryOf(table: SummaryTable, entries: string): string {
  const { columns, select } = SUMMARIES[table];
  return `select ${selected(columns)} from (${select(entries)})`;
}

export function summaryFile(
  table: SummaryTable,
  entriesPaths: readonly string[],
  parquetPath: string,
): string {
  const { columns } = SUMMARIES[table];
  const entries = `read_parquet([${entriesPaths.map(literal).join(', ')}], hive_partitioning = false)`;
  return `copy (${summaryOf(table, entries)} order by ${columns.map(({ name }) => name).join(', ')})
    to ${literal(parquetPath)} (format parquet, compression zstd)`;
}

/** Counts the rows in which a month's published summary differs from the one that its entries give now. */
export function summaryDifference(table: SummaryTable, month: string): string {
  const names = SUMMARIES[table].columns.map(({ name }) => name).join(', ');
  const computed = summaryOf(table, entriesOf(month));
  return `select count(*) from (
    select ${names} from (
      select ${names}, 1 as times from ${table} where month = ${literal(month)}
      union all select ${names}, -1 from (${computed}))
    group by ${names} having sum(times) <> 0)`;
}

/**
 * The summary of a range with its column `month`: what is published of whole months, and what entries say of
 * the rest. The rows of one month come from one of both.
 */
export function summaryWithin(table: SummaryTable, { whole, rest }: MonthRange): string {
  const names = SUMMARIES[table].columns.map(({ name }) => name).join(', ');
  const limits = [
    ...(whole === undefined ? ['false'] : []),
    ...(whole?.first === undefined ? [] : [`month >= ${literal(whole.first)}`]),
    ...(whole?.end === undefined ? [] : [`month < ${literal(whole.end)}`]),
  ];
  const published = `select month, ${names} from ${table}${limits.length === 0 ? '' : ` where ${limits.join(' and ')}`}`;
  const summedUp = rest.map(({ month, from, to }) => {
    const entries = `(select * from ledger_entries
      where vega_time >= timestamptz ${literal(from)} and vega_time < timestamptz ${literal(to)})`;
    return `select ${literal(month)} as month, ${names} from (${summaryOf(table, entries)})`;
  });
  return [published, ...summedUp].join('\n  union all ');
}
