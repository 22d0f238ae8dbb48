/**
 * Summaries of ledger entries: what the ready questions ask of whole months. Each file of entries has a file of
 * each summary, which is made with it and leaves with it; so a summary's rows are parts, to be put together by
 * who reads them. Each is one SELECT over entries, so a part of a month can be summed up the same way.
 */
import {
  AMOUNT,
  amount,
  count,
  type LakeColumn,
  type LakeTable,
  namesOf,
  selected,
  text,
  TIME,
} from './columns.ts';
import type { MonthRange } from './month-range.ts';
import { literal } from '../local/sql.ts';

export const SUMMARY_TABLES = [
  'daily_flows',
  'monthly_fees',
  'monthly_balances',
  'monthly_activity',
] as const satisfies readonly LakeTable[];
export type SummaryTable = (typeof SUMMARY_TABLES)[number];

/** To be raised with any change of what a summary holds: all are then made anew. */
export const SUMMARY_FORM = 2;

interface SummaryShape {
  readonly description: string;
  readonly columns: readonly LakeColumn[];
  /** Whether it depends on which rows count, and so on the coverage of other parties. */
  readonly isOfCounted: boolean;
  /** @param entries what stands behind FROM: rows of one month, with `is_counted` where it is asked for */
  readonly select: (entries: string) => string;
  /** @param parts what stands behind FROM: rows of the summary. Puts them together. */
  readonly merge: (parts: string) => string;
}

/** Names the sum to the last digit that `select` leaves as a BIGNUM. */
const sum = (name: string, comment: string): readonly LakeColumn[] =>
  amount(name, comment, `cast(${name} as VARCHAR)`);
const plain = (name: string, type: string, comment: string): LakeColumn => ({ name, type, comment });

const exactSum = (name: string, condition = 'true'): string =>
  `exact_sum(case when ${condition} then ${name} end, case when ${condition} then ${name}_text end)`;
const mergedSum = (name: string): string => `exact_sum(${name}, ${name}_text) as ${name}`;
const mergedCount = (name: string): string => `cast(sum(${name}) as BIGINT) as ${name}`;

const ACCOUNT = ['party_id', 'asset_id', 'account_type', 'market_id'] as const;

function side(name: 'from' | 'to', entries: string): string {
  const account = `account_${name}`;
  return `select ${account}_party_id as party_id, asset_id, ${account}_account_type as account_type,
      ${account}_market_id as market_id, vega_time as as_of, ${account}_balance as balance, ${account}_balance_text as balance_text
    from ${entries} where ${account}_balance is not null or ${account}_balance_text is not null`;
}

/** Entries of one block have no order: where the last block of an account leaves several balances, all are kept. */
function lastBalances(known: string): string {
  const keys = ACCOUNT.join(', ');
  const isSame = ACCOUNT.map((key) => `known.${key} is not distinct from latest.${key}`).join(' and ');
  // Time first: it alone leaves few rows, and costs less to compare than ids.
  return `with known as not materialized (${known}),
  latest as materialized (select ${keys}, max(as_of) as as_of from known group by ${keys})
  select distinct known.* from known join latest on known.as_of = latest.as_of and ${isSame}`;
}

/** Both accounts are one party's. */
const WITHIN = '(account_from_party_id is not distinct from account_to_party_id)';

export const SUMMARIES: Readonly<Record<SummaryTable, SummaryShape>> = {
  daily_flows: {
    description: 'What moved each day, each entry once: parts, to be added up',
    columns: [
      plain('day', 'DATE', 'UTC'),
      text('asset_id', 'Asset'),
      text('transfer_type', 'Why it moved'),
      count('entries', 'How many entries'),
      ...sum('quantity', 'What they moved'),
    ],
    isOfCounted: true,
    // UTC's day, without a calendar of zones, which takes thrice as long.
    select: (
      entries,
    ) => `select cast(make_timestamp(epoch_us(vega_time)) as date) as day, asset_id, transfer_type, count(*) as entries,
      ${exactSum('quantity')} as quantity
    from ${entries} where is_counted group by 1, 2, 3`,
    merge: (
      parts,
    ) => `select day, asset_id, transfer_type, ${mergedCount('entries')}, ${mergedSum('quantity')}
      from ${parts} group by 1, 2, 3`,
  },
  monthly_fees: {
    description: 'Fees that parties paid, each entry once: parts, to be added up',
    columns: [
      text('party_id', 'Who paid'),
      text('asset_id', 'Asset'),
      text('transfer_type', 'Which fee'),
      count('payments', 'How many payments'),
      ...sum('paid', 'What was paid'),
    ],
    isOfCounted: true,
    select: (entries) => `select account_from_party_id as party_id, asset_id, transfer_type,
      count(*) as payments, ${exactSum('quantity')} as paid
    from ${entries} where is_counted and transfer_type like '%\\_FEE\\_PAY' escape '\\' group by 1, 2, 3`,
    merge: (
      parts,
    ) => `select party_id, asset_id, transfer_type, ${mergedCount('payments')}, ${mergedSum('paid')}
      from ${parts} group by 1, 2, 3`,
  },
  monthly_balances: {
    description: 'Balances after the last entries of each account: parts, of which the latest count',
    columns: [
      text('party_id', 'Owner'),
      text('asset_id', 'Asset'),
      text('account_type', 'Account type'),
      text('market_id', 'Market; NULL where the account belongs to none'),
      plain('as_of', TIME, 'Time of the last entry'),
      plain('balance', AMOUNT, 'Balance after it'),
      text('balance_text', 'balance where it has more than 38 digits; balance is then NULL'),
    ],
    isOfCounted: false,
    select: (entries) => lastBalances(`${side('from', entries)} union all ${side('to', entries)}`),
    merge: (parts) =>
      lastBalances(`select ${ACCOUNT.join(', ')}, as_of, balance, balance_text from ${parts}`),
  },
  monthly_activity: {
    description: 'Entries of each exported ledger: parts, to be added up',
    columns: [
      text('party_id', 'Whose export'),
      text('asset_id', 'Asset'),
      count('entries', 'How many entries'),
      ...sum('sent', 'What others got from it'),
      ...sum('received', 'What it got from others; a lower bound where its export shows one side'),
      ...sum('moved_within', 'What it moved between its own accounts'),
      plain('last_at', TIME, 'Time of the last entry'),
    ],
    isOfCounted: false,
    select: (entries) => `select party_id, asset_id, count(*) as entries,
      ${exactSum('quantity', `account_from_party_id = party_id and not ${WITHIN}`)} as sent,
      ${exactSum('quantity', `account_to_party_id = party_id and not ${WITHIN}`)} as received,
      ${exactSum('quantity', `account_from_party_id = party_id and ${WITHIN}`)} as moved_within, max(vega_time) as last_at
    from ${entries} group by 1, 2`,
    merge: (parts) => `select party_id, asset_id, ${mergedCount('entries')}, ${mergedSum('sent')},
      ${mergedSum('received')}, ${mergedSum('moved_within')}, max(last_at) as last_at from ${parts} group by 1, 2`,
  },
};

/** The summary of `entries`, which is what stands behind FROM, with the columns of its file. */
export function summaryOf(table: SummaryTable, entries: string): string {
  const { columns, select } = SUMMARIES[table];
  return `select ${selected(columns)} from (${select(entries)})`;
}

/** Counts the rows in which a month's summary differs from the one that its entries give now. */
export function summaryDifference(table: SummaryTable, month: string): string {
  const ofMonth = (name: string): string => `(select * from ${name} where month = ${literal(month)})`;
  const { columns, merge } = SUMMARIES[table];
  const names = namesOf(columns);
  return `select count(*) from (
    select ${names} from (
      select ${names}, 1 as times from (select ${selected(columns)} from (${merge(ofMonth(table))}))
      union all select ${names}, -1 from (${summaryOf(table, ofMonth('ledger_entries'))}))
    group by ${names} having sum(times) <> 0)`;
}

/**
 * The summary of a range with its column `month`: what is published of whole months, and what entries say of
 * the rest. The rows of one month come from one of both.
 */
export function summaryWithin(table: SummaryTable, { whole, rest }: MonthRange): string {
  const names = namesOf(SUMMARIES[table].columns);
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
