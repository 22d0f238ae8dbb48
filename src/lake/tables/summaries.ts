/**
 * Summaries of ledger entries: what the ready questions ask of whole months. Each file of entries has a file of
 * each summary, which is made with it and leaves with it; so a summary's rows are parts, to be put together by
 * who reads them. Each is one SELECT over entries, so a part of a month can be summed up the same way.
 */
import { formatInstant, type Micros, monthOf, monthStart } from '../../time/time.ts';
import {
  AMOUNT,
  amount,
  type LakeColumn,
  namesOf,
  plain,
  selected,
  type SummaryTable,
  text,
  TIME,
} from './columns.ts';
import { literal } from '../local/duckdb.ts';

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

/** A value of a summary that is added up: how entries give it, and how its parts are put together. */
interface Figure {
  readonly columns: readonly LakeColumn[];
  readonly select: string;
  readonly merge: string;
}

const key = (column: LakeColumn, from = column.name): Figure => ({
  columns: [column],
  select: from,
  merge: column.name,
});
const counted = (name: string, comment: string): Figure => ({
  columns: [plain(name, 'BIGINT', comment)],
  select: 'count(*)',
  merge: `cast(sum(${name}) as BIGINT)`,
});
/** To the last digit: a BIGNUM, before it is written. */
const summed = (name: string, comment: string, condition = 'true'): Figure => ({
  columns: amount(name, comment, `cast(${name} as VARCHAR)`),
  select: `exact_sum(case when ${condition} then quantity end, case when ${condition} then quantity_text end)`,
  merge: `exact_sum(${name}, ${name}_text)`,
});
const last = (name: string, comment: string): Figure => ({
  columns: [plain(name, TIME, comment)],
  select: 'max(vega_time)',
  merge: `max(${name})`,
});

function addedUp(figures: readonly Figure[], condition = 'true') {
  const values = (kind: 'select' | 'merge'): string =>
    figures.map((figure) => `${figure[kind]} as ${figure.columns[0]?.name}`).join(', ');
  return {
    columns: figures.flatMap(({ columns }) => columns),
    select: (entries: string) =>
      `select ${values('select')} from ${entries} where ${condition} group by all`,
    merge: (parts: string) => `select ${values('merge')} from ${parts} group by all`,
  };
}

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
  const isSame = ACCOUNT.map(
    (name) => `known.${name} is not distinct from latest.${name}`,
  ).join(' and ');
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
    isOfCounted: true,
    ...addedUp(
      [
        // UTC's day, without a calendar of zones, which takes thrice as long.
        key(
          plain('day', 'DATE', 'UTC'),
          'cast(make_timestamp(epoch_us(vega_time)) as date)',
        ),
        key(text('asset_id', 'Asset')),
        key(text('transfer_type', 'Why it moved')),
        counted('entries', 'How many entries'),
        summed('quantity', 'What they moved'),
      ],
      'is_counted',
    ),
  },
  monthly_fees: {
    description: 'Fees that parties paid, each entry once: parts, to be added up',
    isOfCounted: true,
    ...addedUp(
      [
        key(text('party_id', 'Who paid'), 'account_from_party_id'),
        key(text('asset_id', 'Asset')),
        key(text('transfer_type', 'Which fee')),
        counted('payments', 'How many payments'),
        summed('paid', 'What was paid'),
      ],
      String.raw`is_counted and transfer_type like '%\_FEE\_PAY' escape '\'`,
    ),
  },
  monthly_balances: {
    description:
      'Balances after the last entries of each account: parts, of which the latest count',
    columns: [
      text('party_id', 'Owner'),
      text('asset_id', 'Asset'),
      text('account_type', 'Account type'),
      text('market_id', 'Market; NULL where the account belongs to none'),
      plain('as_of', TIME, 'Time of the last entry'),
      plain('balance', AMOUNT, 'Balance after it'),
      text(
        'balance_text',
        'balance where it has more than 38 digits; balance is then NULL',
      ),
    ],
    isOfCounted: false,
    select: (entries) =>
      lastBalances(`${side('from', entries)} union all ${side('to', entries)}`),
    merge: (parts) =>
      lastBalances(
        `select ${ACCOUNT.join(', ')}, as_of, balance, balance_text from ${parts}`,
      ),
  },
  monthly_activity: {
    description: 'Entries of each exported ledger: parts, to be added up',
    isOfCounted: false,
    ...addedUp([
      key(text('party_id', 'Whose export')),
      key(text('asset_id', 'Asset')),
      counted('entries', 'How many entries'),
      summed(
        'sent',
        'What others got from it',
        `account_from_party_id = party_id and not ${WITHIN}`,
      ),
      summed(
        'received',
        'What it got from others; a lower bound where its export shows one side',
        `account_to_party_id = party_id and not ${WITHIN}`,
      ),
      summed(
        'moved_within',
        'What it moved between its own accounts',
        `account_from_party_id = party_id and ${WITHIN}`,
      ),
      last('last_at', 'Time of the last entry'),
    ]),
  },
};

/** The summary of `entries`, which is what stands behind FROM, with the columns of its file. */
export function summaryOf(table: SummaryTable, entries: string): string {
  const { columns, select } = SUMMARIES[table];
  return `select ${selected(columns)} from (${select(entries)})`;
}

/** Counts the rows in which a month's summary differs from the one that its entries give now. */
export function summaryDifference(table: SummaryTable, month: string): string {
  const ofMonth = (name: string): string =>
    `(select * from ${name} where month = ${literal(month)})`;
  const { columns, merge } = SUMMARIES[table];
  const names = namesOf(columns);
  return `select count(*) from (
    select ${names} from (
      select ${names}, 1 as times from (select ${selected(columns)} from (${merge(ofMonth(table))}))
      union all select ${names}, -1 from (${summaryOf(table, ofMonth('ledger_entries'))}))
    group by ${names} having sum(times) <> 0)`;
}

/** Half open; undefined: no limit. */
export interface InstantRange {
  readonly since: Micros | undefined;
  readonly until: Micros | undefined;
}

/** Months that the range begins or ends within: two at most. */
export function cutMonths({ since, until }: InstantRange): readonly string[] {
  const isCut = (instant: Micros | undefined) =>
    instant !== undefined && monthStart(instant) !== instant;
  return [
    ...new Set([since, until].filter(isCut).map((instant = 0n) => monthOf(instant))),
  ];
}

/** Whether all of the month is in the range. */
export function isWholeMonth(month: string, range: InstantRange): boolean {
  const { since, until } = range;
  if (cutMonths(range).includes(month)) return false;
  return (
    (since === undefined || month >= monthOf(since)) &&
    (until === undefined || month < monthOf(until))
  );
}

/**
 * The summary of a range with its column `month`: what is published of whole months, and what entries say of
 * those that are cut. The rows of one month come from one of both.
 */
export function summaryWithin(table: SummaryTable, range: InstantRange): string {
  const names = namesOf(SUMMARIES[table].columns);
  const cut = cutMonths(range);
  const limited = (
    column: string,
    write: (instant: Micros) => string,
  ): readonly string[] => [
    ...(range.since === undefined ? [] : [`${column} >= ${write(range.since)}`]),
    ...(range.until === undefined ? [] : [`${column} < ${write(range.until)}`]),
  ];
  const whole = [
    ...limited('month', (instant) => literal(monthOf(instant))),
    ...cut.map((month) => `month <> ${literal(month)}`),
  ];
  const within = limited(
    'vega_time',
    (instant) => `timestamptz ${literal(formatInstant(instant))}`,
  );
  const summedUp = cut.map((month) => {
    const entries = `(select * from ledger_entries where month = ${literal(month)} and ${within.join(' and ')})`;
    return `select ${literal(month)} as month, ${names} from (${summaryOf(table, entries)})`;
  });
  const published = `select month, ${names} from ${table}${whole.length === 0 ? '' : ` where ${whole.join(' and ')}`}`;
  return [published, ...summedUp].join('\n  union all ');
}
