/**
 * Summaries of ledger entries, from which ready questions are answered for whole months.
 * Each file of entries has one file in each summary, and the two are written and removed
 * together. The rows of a summary are therefore partial results, which the reader merges.
 * A summary is a single SELECT over entries, so part of a month can be summarized in the
 * same way.
 */
import {
  formatInstant,
  type Micros,
  monthOf,
  monthStart,
} from '../../time/time.ts';
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

/**
 * Increase this number when the contents of any summary change; the next build then
 * rewrites all summaries.
 */
export const SUMMARY_FORM = 2;

interface SummaryShape {
  readonly description: string;
  readonly columns: readonly LakeColumn[];
  /**
   * Whether the summary depends on which rows count, and therefore on the coverage of
   * other parties.
   */
  readonly isOfCounted: boolean;
  /**
   * Returns SQL that summarizes entries.
   * @param entries SQL for FROM: rows of one month, with `is_counted` if the summary uses
   *   it
   */
  readonly select: (entries: string) => string;
  /**
   * Returns SQL that merges partial results.
   * @param parts SQL for FROM: rows of the summary
   */
  readonly merge: (parts: string) => string;
}

/**
 * One value in a summary: how it is computed from entries, and how partial results are
 * merged.
 */
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
/** An exact sum. It is a BIGNUM until it is written. */
const summed = (name: string, comment: string, condition = 'true'): Figure => ({
  columns: amount(name, comment, `cast(${name} as VARCHAR)`),
  select:
    `exact_sum(case when ${condition} then quantity end, case when ${condition} ` +
    'then quantity_text end)',
  merge: `exact_sum(${name}, ${name}_text)`,
});
const last = (name: string, comment: string): Figure => ({
  columns: [plain(name, TIME, comment)],
  select: 'max(vega_time)',
  merge: `max(${name})`,
});

function addedUp(figures: readonly Figure[], condition = 'true') {
  const values = (kind: 'select' | 'merge'): string =>
    figures
      .map((figure) => `${figure[kind]} as ${figure.columns[0]?.name}`)
      .join(', ');
  return {
    columns: figures.flatMap(({ columns }) => columns),
    select: (entries: string) =>
      `select ${values('select')} from ${entries} where ${condition} group by all`,
    merge: (parts: string) =>
      `select ${values('merge')} from ${parts} group by all`,
  };
}

const ACCOUNT = ['party_id', 'asset_id', 'account_type', 'market_id'] as const;

function side(name: 'from' | 'to', entries: string): string {
  const account = `account_${name}`;
  return `select ${account}_party_id as party_id, asset_id, ${account}_account_type as account_type,
      ${account}_market_id as market_id, vega_time as as_of, ${account}_balance as balance, ${account}_balance_text as balance_text
    from ${entries} where ${account}_balance is not null or ${account}_balance_text is not null`;
}

/**
 * Returns SQL for each account's last balances. Entries within one block have no order,
 * so if an account has several balances in its last block, all of them are kept.
 */
function lastBalances(known: string): string {
  const keys = ACCOUNT.join(', ');
  const isSame = ACCOUNT.map(
    (name) => `known.${name} is not distinct from latest.${name}`,
  ).join(' and ');
  // Compare the time first. That alone leaves few rows, and a time is cheaper to compare
  // than ids.
  return `with known as not materialized (${known}),
  latest as materialized (select ${keys}, max(as_of) as as_of from known group by ${keys})
  select distinct known.* from known join latest on known.as_of = latest.as_of and ${isSame}`;
}

/** SQL: whether both accounts belong to the same party. */
const WITHIN =
  '(account_from_party_id is not distinct from account_to_party_id)';

export const SUMMARIES: Readonly<Record<SummaryTable, SummaryShape>> = {
  daily_flows: {
    description:
      'Amounts moved on each day, each entry counted once: partial results to add up',
    isOfCounted: true,
    ...addedUp(
      [
        // The day in UTC, computed by hand because DuckDB's time zone functions take
        // three times as long.
        key(
          plain('day', 'DATE', 'UTC'),
          'cast(make_timestamp(epoch_us(vega_time)) as date)',
        ),
        key(text('asset_id', 'Asset')),
        key(text('transfer_type', 'Why it moved')),
        counted('entries', 'Number of entries'),
        summed('quantity', 'Total amount moved'),
      ],
      'is_counted',
    ),
  },
  monthly_fees: {
    description:
      'Fees paid by parties, each entry counted once: partial results to add up',
    isOfCounted: true,
    ...addedUp(
      [
        key(text('party_id', 'The payer'), 'account_from_party_id'),
        key(text('asset_id', 'Asset')),
        key(text('transfer_type', 'Kind of fee')),
        counted('payments', 'Number of payments'),
        summed('paid', 'Total paid'),
      ],
      String.raw`is_counted and transfer_type like '%\_FEE\_PAY' escape '\'`,
    ),
  },
  monthly_balances: {
    description:
      'Balances after the last entries of each account: partial results; use the latest',
    columns: [
      text('party_id', 'Owner of the account'),
      text('asset_id', 'Asset'),
      text('account_type', 'Account type'),
      text('market_id', 'Market; NULL if the account belongs to none'),
      plain('as_of', TIME, 'Time of the last entry'),
      plain('balance', AMOUNT, 'Balance after the last entry'),
      text(
        'balance_text',
        'The value if it has more than 38 digits, in which case balance is NULL',
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
    description: 'Entries of each exported ledger: partial results to add up',
    isOfCounted: false,
    ...addedUp([
      key(text('party_id', 'The exported party')),
      key(text('asset_id', 'Asset')),
      counted('entries', 'Number of entries'),
      summed(
        'sent',
        'Total sent to others',
        `account_from_party_id = party_id and not ${WITHIN}`,
      ),
      summed(
        'received',
        'Total received from others; only a lower bound if the export contains just one side of each transfer',
        `account_to_party_id = party_id and not ${WITHIN}`,
      ),
      summed(
        'moved_within',
        'Total moved between its own accounts',
        `account_from_party_id = party_id and ${WITHIN}`,
      ),
      last('last_at', 'Time of the last entry'),
    ]),
  },
};

/**
 * Returns SQL for the summary of entries, with the columns of its file.
 * @param entries SQL for FROM
 */
export function summaryOf(table: SummaryTable, entries: string): string {
  const { columns, select } = SUMMARIES[table];
  return `select ${selected(columns)} from (${select(entries)})`;
}

/**
 * Returns SQL that counts the rows in which a month's published summary differs from one
 * freshly computed from its entries.
 */
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

/** A half-open time range; undefined means unbounded. */
export interface InstantRange {
  readonly since: Micros | undefined;
  readonly until: Micros | undefined;
}

/**
 * The time range of a question, and whether the question reads the entries of the whole
 * range.
 */
export interface QuestionRange extends InstantRange {
  readonly isOfEntries?: boolean;
}

/** Whether the month and the range may overlap. */
export function overlapsMonth(
  month: string,
  { since, until }: InstantRange,
): boolean {
  return (
    (since === undefined || month >= monthOf(since)) &&
    (until === undefined || month <= monthOf(until))
  );
}

/** Returns the months that the range covers only partly, at most two. */
export function cutMonths({ since, until }: InstantRange): readonly string[] {
  const months = new Set<string>();
  for (const instant of [since, until]) {
    const isWithinMonth =
      instant !== undefined && monthStart(instant) !== instant;
    if (isWithinMonth) months.add(monthOf(instant));
  }
  return [...months];
}

/** Whether the range includes the whole month. */
export function isWholeMonth(month: string, range: InstantRange): boolean {
  const { since, until } = range;
  if (cutMonths(range).includes(month)) return false;
  return (
    (since === undefined || month >= monthOf(since)) &&
    (until === undefined || month < monthOf(until))
  );
}

/**
 * Returns SQL for the summary of a range, with a column `month`. A month that lies
 * entirely within the range is read from the published summary; a month that is only
 * partly covered is summarized from its entries.
 */
export function summaryWithin(
  table: SummaryTable,
  range: InstantRange,
): string {
  const names = namesOf(SUMMARIES[table].columns);
  const cut = cutMonths(range);
  const isWhole = [
    ...limits('month', range, (instant) => literal(monthOf(instant))),
    ...cut.map((month) => `month <> ${literal(month)}`),
  ];
  const where = isWhole.length === 0 ? '' : ` where ${isWhole.join(' and ')}`;
  const published = `select month, ${names} from ${table}${where}`;

  const isWithin = limits('vega_time', range, timestampLiteral).join(' and ');
  const summedUp = cut.map((month) => {
    const entries = `(select * from ledger_entries
      where month = ${literal(month)} and ${isWithin})`;
    const summary = summaryOf(table, entries);
    return `select ${literal(month)} as month, ${names} from (${summary})`;
  });
  return [published, ...summedUp].join('\n  union all ');
}

/** Returns SQL for the entries of a range. */
export function entriesWithin(range: InstantRange): string {
  const isWithin = limits('vega_time', range, timestampLiteral);
  const where = isWithin.length === 0 ? '' : ` where ${isWithin.join(' and ')}`;
  return `select * from ledger_entries${where}`;
}

/** Returns SQL conditions that restrict a column to the range. */
function limits(
  column: string,
  { since, until }: InstantRange,
  write: (instant: Micros) => string,
): readonly string[] {
  const conditions: string[] = [];
  if (since !== undefined) conditions.push(`${column} >= ${write(since)}`);
  if (until !== undefined) conditions.push(`${column} < ${write(until)}`);
  return conditions;
}

export function timestampLiteral(instant: Micros): string {
  return `timestamptz ${literal(formatInstant(instant))}`;
}
