/**
 * Questions that analysts ask every day, ready to run by name. An entry between two
 * mirrored parties counts once. Whole months are answered from their summaries, so the
 * cost of a question grows with the number of months, not of entries.
 */
import type { DuckDBConnection } from '@duckdb/node-api';
import { UsageError } from '../../errors/errors.ts';
import { CANDIDATES_MAX, chooseById, splitCutId } from '../../ledger/ids.ts';
import { formatInstant, type Micros, nowMicros } from '../../time/time.ts';
import { readTypedRange } from '../../time/typed-range.ts';
import { readTypedTime } from '../../time/typed-time.ts';
import type { SummaryTable } from '../tables/columns.ts';
import {
  entriesWithin,
  type QuestionRange,
  summaryWithin,
  timestampLiteral,
} from '../tables/summaries.ts';

export interface ReadyQuestion {
  readonly name: string;
  readonly title: string;
  /** The options that the question takes. */
  readonly parameters: readonly QuestionParameter[];
  /** Parameters that the question requires, each with a sample value. */
  readonly required?: QuestionValues;
  /**
   * The table that the question reads, a summary or the entries; undefined if it reads
   * other tables.
   */
  readonly reads: SummaryTable | 'ledger_entries' | undefined;
  /**
   * Whether `since` is part of the question itself and does not restrict the rows read,
   * as in "who has been inactive since then?"
   */
  readonly isOfAllTime?: boolean;
  /** A note that is shown if a result row has `both_sides` false. */
  readonly oneSided?: string;
  /**
   * Returns the question's SQL.
   * @param rows SQL for FROM: the summary or the entries within the requested range
   * @param instants SQL for `since` and `at`, if given
   */
  readonly select: (rows: string, instants: QuestionInstants) => string;
}

type QuestionInstants = Readonly<Partial<Record<'since' | 'at', string>>>;

/** The options of ready questions; each question takes some of them. */
export const QUESTION_PARAMETERS = [
  'since',
  'until',
  'month',
  'at',
  'party',
  'asset',
] as const;

export type QuestionParameter = (typeof QUESTION_PARAMETERS)[number];

/**
 * The values of the options. An absent option sets no limit. Times are as users type
 * them; `since` is inclusive, `until` is exclusive, and `month` sets both.
 */
export type QuestionValues = Readonly<
  Partial<Record<QuestionParameter, string>>
>;

/** A question with its options applied, ready for `openLake` and `runQuery`. */
export interface Inquiry {
  readonly sql: string;
  /** SQL for FROM: the rows that the question reads; empty if it reads no summary. */
  readonly rows: string;
  readonly range: QuestionRange;
  /** Values of `$name` in the SQL; null stands for NULL. */
  readonly parameters: Readonly<Record<'party' | 'asset', string | null>>;
}

const OF_ASSET = `(cast($asset as varchar) is null or asset_id = $asset)`;
const OF_EITHER_PARTY = `(cast($party as varchar) is null
    or account_from_party_id = $party or account_to_party_id = $party)`;
/** SQL: the amount that an entry moved, as an integer of any size. */
const EXACT_QUANTITY =
  'cast(coalesce(cast(quantity as varchar), quantity_text) as bignum)';
const OF_PARTY = `(cast($party as varchar) is null or party_id = $party)`;

/**
 * SQL: whether any range of `party_id`'s ledger was exported by a release that sends only
 * one side, or the ledger was not exported at all. In both cases, the amounts that the
 * party received from others are unknown.
 */
const IS_ONE_SIDED = `(party_id not in (select party_id from coverage where both_sides)
    or party_id in (select party_id from coverage where not both_sides))`;

/** SQL for all party ids; used to complete a shortened id. */
export const KNOWN_PARTIES =
  'select party_id as id from parties union select party_id from coverage';

export const READY_QUESTIONS: readonly ReadyQuestion[] = [
  {
    name: 'top-parties',
    title:
      'the twenty parties with the most entries, one row per asset: amounts sent to ' +
      'others, received from others, and moved within',
    parameters: ['since', 'until', 'month', 'asset'],
    reads: 'monthly_activity',
    oneSided:
      'both_sides false: the ledger is not exported with both sides, so the amount ' +
      'received by the party is unknown, and empty here.',
    select: (
      rows,
    ) => `with activity as (select * from ${rows} where ${OF_ASSET}),
busiest as (
  select party_id, sum(entries) as of_party from activity
   group by party_id order by of_party desc, party_id limit 20)
select party_id, asset_id, cast(sum(entries) as bigint) as entries, exact_sum(sent, sent_text) as sent,
       case when not ${IS_ONE_SIDED} then exact_sum(received, received_text) end as received,
       exact_sum(moved_within, moved_within_text) as moved_within, max(last_at) as latest,
       not ${IS_ONE_SIDED} as both_sides
  from activity join busiest using (party_id)
 group by party_id, asset_id, of_party order by of_party desc, party_id, asset_id`,
  },
  {
    name: 'daily-flows',
    title: 'what moved each day, by asset and type',
    parameters: ['since', 'until', 'month', 'asset'],
    reads: 'daily_flows',
    select: (
      rows,
    ) => `select day, asset_id, transfer_type, cast(sum(entries) as bigint) as entries,
       exact_sum(quantity, quantity_text) as quantity
  from ${rows} where ${OF_ASSET}
 group by day, asset_id, transfer_type order by day, asset_id, transfer_type`,
  },
  {
    name: 'fees',
    title: 'fees paid, by month, asset and kind',
    parameters: ['since', 'until', 'month', 'asset', 'party'],
    reads: 'monthly_fees',
    select: (
      rows,
    ) => `select month, asset_id, transfer_type, cast(sum(payments) as bigint) as payments,
       count(distinct party_id) as payers, exact_sum(paid, paid_text) as paid
  from ${rows} where ${OF_ASSET} and ${OF_PARTY}
 group by month, asset_id, transfer_type order by month, asset_id, transfer_type`,
  },
  {
    name: 'balances',
    title:
      "each account's balance after its last entry; several balances if its last block " +
      'does not show which came last',
    parameters: ['until', 'party', 'asset'],
    reads: 'monthly_balances',
    oneSided:
      'both_sides false: the ledger is not exported with both sides, so later ' +
      'entries to the account may be missing.',
    select: (rows) => `with known as (
  select * from ${rows} where party_id <> 'network' and ${OF_ASSET} and ${OF_PARTY}),
latest as (
  select *, max(as_of) over (partition by party_id, asset_id, account_type, market_id) as latest from known)
select party_id, asset_id, account_type, market_id, as_of,
       string_agg(distinct coalesce(cast(balance as varchar), balance_text), ' or '
         order by coalesce(cast(balance as varchar), balance_text)) as balance, not ${IS_ONE_SIDED} as both_sides
  from latest where as_of = latest
 group by party_id, asset_id, account_type, market_id, as_of
 order by party_id, asset_id, account_type, market_id`,
  },
  {
    name: 'cadence',
    title: 'checkpoints: how many, how far apart, and the widest gap',
    parameters: [],
    reads: undefined,
    select: () => `with heights as (
  select epoch, at_block, count(*) as at_height, at_block - lag(at_block) over (partition by epoch order by at_block) as gap
    from checkpoints group by epoch, at_block)
select epoch, sum(at_height) as checkpoints, count(*) as heights, min(at_block) as first_block, max(at_block) as last_block,
       median(gap) as median_gap, max(gap) as widest_gap,
       case when max(gap) > median(gap) then first(at_block order by gap desc nulls last, at_block) end as widest_gap_ends_at
  from heights group by epoch order by epoch`,
  },
  {
    name: 'holders',
    title:
      'at the end of each month, how many parties and accounts hold an asset, ' +
      'and how much',
    parameters: ['until', 'asset'],
    reads: 'monthly_balances',
    oneSided:
      'Ledgers that are not exported with both sides lack what the party received, ' +
      'so its balance may be older than the month.',
    select: (rows) => `with known as (
  select *, cast(coalesce(cast(balance as varchar), balance_text) as bignum) as exact,
         max(as_of) over (partition by party_id, asset_id, account_type, market_id, month) as last_at
    from ${rows} where party_id <> 'network' and ${OF_ASSET}),
closing as (
  select party_id, asset_id, account_type, market_id, month, min(exact) as lowest, max(exact) as highest
    from known where as_of = last_at group by all),
spans as (
  select *, lead(month) over (partition by party_id, asset_id, account_type, market_id order by month) as next_month
    from closing),
months as (
  select strftime(unnest(generate_series(cast(min(month) || '-01' as timestamp), cast(max(month) || '-01' as timestamp),
         interval 1 month)), '%Y-%m') as month from closing)
select months.month, asset_id, count(distinct party_id) filter (where highest > cast('0' as bignum)) as holders,
       count(*) filter (where highest > cast('0' as bignum)) as accounts,
       coalesce(sum(highest) filter (where highest > cast('0' as bignum)), cast('0' as bignum)) as held,
       count(*) filter (where lowest <> highest) as unresolved
  from months join spans on spans.month <= months.month and (next_month is null or months.month < next_month)
 group by months.month, asset_id order by months.month, asset_id`,
  },
  {
    name: 'who-pays',
    title: 'who moved how much to whom, busiest pairs first',
    parameters: ['since', 'until', 'month', 'party', 'asset'],
    reads: 'ledger_entries',
    select: (
      rows,
    ) => `select account_from_party_id as payer, account_to_party_id as payee, asset_id,
       count(*) as entries, exact_sum(quantity, quantity_text) as quantity, min(vega_time) as first_at, max(vega_time) as last_at
  from ${rows}
 where is_counted and account_from_party_id is distinct from account_to_party_id and ${OF_ASSET} and ${OF_EITHER_PARTY}
 group by payer, payee, asset_id order by entries desc, payer, payee, asset_id`,
  },
  {
    name: 'fees-by-market',
    title: 'fees paid, by month, market, asset and kind',
    parameters: ['since', 'until', 'month', 'asset', 'party'],
    reads: 'ledger_entries',
    select: (
      rows,
    ) => `select month, coalesce(account_from_market_id, account_to_market_id) as market_id, asset_id, transfer_type,
       count(*) as payments, count(distinct account_from_party_id) as payers, exact_sum(quantity, quantity_text) as paid
  from ${rows}
 where is_counted and transfer_type like '%\\_FEE\\_PAY' escape '\\' and ${OF_ASSET}
   and (cast($party as varchar) is null or account_from_party_id = $party)
 group by all order by month, market_id nulls first, asset_id, transfer_type`,
  },
  {
    name: 'dormant',
    title:
      'parties without entries since a given time (default: 90 days before the newest ' +
      'entry), longest idle first',
    parameters: ['since'],
    reads: 'monthly_activity',
    isOfAllTime: true,
    select: (rows, { since }) => `with activity as (
  select party_id, cast(sum(entries) as bigint) as entries, max(last_at) as last_at from ${rows} group by party_id),
newest as (select max(last_at) - interval 90 days as since from activity)
select id as party_id, coalesce(entries, 0) as entries, last_at
  from (${KNOWN_PARTIES}) left join activity on party_id = id
 where id <> 'network' and (last_at is null or last_at < ${since ?? '(select since from newest)'})
 order by last_at nulls first, id`,
  },
  {
    name: 'statement',
    title:
      'an account statement for one party: each change to its accounts, by time; ' +
      'the changes of one block have no order',
    parameters: ['party', 'since', 'until', 'month', 'asset'],
    required: { party: 'PARTY' },
    reads: 'ledger_entries',
    oneSided:
      'Where the ledger is not exported with both sides, what the party received may ' +
      'be missing.',
    select: (rows) => `with sides as (
  select vega_time, asset_id, account_from_account_type as account_type, account_from_market_id as market_id, transfer_type,
         account_to_party_id as counterparty_id, -${EXACT_QUANTITY} as change,
         coalesce(cast(account_from_balance as varchar), account_from_balance_text) as balance
    from ${rows} where is_counted and account_from_party_id = $party and ${OF_ASSET}
  union all
  select vega_time, asset_id, account_to_account_type, account_to_market_id, transfer_type,
         account_from_party_id, ${EXACT_QUANTITY}, coalesce(cast(account_to_balance as varchar), account_to_balance_text)
    from ${rows} where is_counted and account_to_party_id = $party and ${OF_ASSET})
select * from sides order by all`,
  },
  {
    name: 'around',
    title:
      'every entry within ten minutes of an instant, for example around an incident',
    parameters: ['at', 'party', 'asset'],
    required: { at: '2026-01-01T00:00:00Z' },
    reads: 'ledger_entries',
    select: (rows, { at = '' }) => `select vega_time,
       round((epoch_us(vega_time) - epoch_us(${at})) / 1000000.0, 6) as seconds_after, transfer_type, asset_id,
       account_from_party_id as payer, account_to_party_id as payee, ${EXACT_QUANTITY} as quantity
  from ${rows} where is_counted and ${OF_ASSET} and ${OF_EITHER_PARTY} order by all`,
  },
];

export function readyQuestion(name: string): ReadyQuestion | undefined {
  return READY_QUESTIONS.find((question) => question.name === name);
}

/**
 * Applies options to a question.
 * @throws UsageError if a time cannot be parsed, or the range is empty
 */
export function inquiry(
  { name, reads, required = {}, isOfAllTime = false, select }: ReadyQuestion,
  values: QuestionValues = {},
): Inquiry {
  const missing = QUESTION_PARAMETERS.filter(
    (parameter) =>
      required[parameter] !== undefined && values[parameter] === undefined,
  );
  if (missing.length > 0)
    throw new UsageError([
      `query ${name}: it needs --${missing.join(' and --')}; give ` +
        missing.map((one) => `--${one} ${required[one] ?? ''}`).join(' ') +
        ', for example',
    ]);
  const { start, end, problems } = readTypedRange(
    { start: values.since, end: values.until, month: values.month },
    { start: '--since', end: '--until' },
    nowMicros(),
  );
  if (problems.length > 0) throw new UsageError(problems);
  const at = values.at === undefined ? undefined : readAt(values.at);
  const range = {
    ...(isOfAllTime ? ALL_TIME : rangeOf(start, end, at)),
    isOfEntries: reads === 'ledger_entries',
  };
  const instants: QuestionInstants = {
    ...(start !== undefined && { since: timestampLiteral(start) }),
    ...(at !== undefined && { at: timestampLiteral(at) }),
  };
  const rows = selectRows(reads, range);
  const { party = null, asset = null } = values;
  return {
    sql: select(rows, instants),
    rows,
    range,
    parameters: { party, asset },
  };
}

const SHOWN_CHARACTERS_MAX = 80;
const ALL_TIME = { since: undefined, until: undefined };
/** How much time `around` shows before and after an instant. */
const AROUND_MICROS = 10n * 60n * 1_000_000n;

function selectRows(
  reads: ReadyQuestion['reads'],
  range: QuestionRange,
): string {
  if (reads === undefined) return '';
  return reads === 'ledger_entries'
    ? `(${entriesWithin(range)})`
    : `(${summaryWithin(reads, range)})`;
}

function rangeOf(
  start: Micros | undefined,
  end: Micros | undefined,
  at: Micros | undefined,
): QuestionRange {
  if (at === undefined) return { since: start, until: end };
  // `until` is exclusive, but the last microsecond must be included.
  return { since: at - AROUND_MICROS, until: at + AROUND_MICROS + 1n };
}

/**
 * Parses the value of `--at`. A period such as `yesterday` is refused: the question would
 * silently cover only the minutes around its midnight.
 * @throws UsageError if the string is not a time, or names a period
 */
function readAt(text: string): Micros {
  const time = readTypedTime(text, nowMicros());
  const shown = JSON.stringify(text.slice(0, SHOWN_CHARACTERS_MAX));
  if (time === undefined)
    throw new UsageError([
      `--at: ${shown} is not a time that can be read; give an instant, such as ` +
        `'2026-03-01 14:30' (UTC)`,
    ]);
  if (time.from !== time.to) {
    const day = formatInstant(time.from).slice(0, 'YYYY-MM-DD'.length);
    throw new UsageError([
      `--at: ${shown} lacks the time of day; give an instant, such as '${day} 14:30' (UTC)`,
    ]);
  }
  return time.from;
}

/** Whether any ledger was exported with only one side. */
export async function hasOneSided(
  connection: DuckDBConnection,
): Promise<boolean> {
  const reader = await connection.runAndReadAll(
    'select count(*) > 0 from coverage where not both_sides',
  );
  return reader.getRows()[0]?.[0] === true;
}

/**
 * Expands shortened ids to the complete ones.
 * @throws UsageError if no id, or more than one, matches
 */
export async function completeIds(
  { parameters, rows }: Pick<Inquiry, 'parameters' | 'rows'>,
  connection: DuckDBConnection,
): Promise<Inquiry['parameters']> {
  const complete = async (
    noun: 'party' | 'asset',
    known: string,
  ): Promise<string | null> => {
    const given = parameters[noun];
    if (given === null) return null;
    const reader = await connection.runAndReadAll(
      `select distinct id from (${known}) where starts_with(id, $prefix) and ` +
        `ends_with(id, $suffix) order by id <> $given, id limit ${CANDIDATES_MAX}`,
      { ...splitCutId(given), given },
    );
    const candidates = reader.getRows().map(([id]) => String(id));
    const hint =
      `give the id of ${noun === 'party' ? 'a party' : 'an asset'} in the lake, or ` +
      'its beginning';
    return chooseById(given, candidates, String, {
      where: `--${noun}`,
      noun,
      hint,
    });
  };
  const party = await complete('party', KNOWN_PARTIES);
  return {
    party,
    asset: await complete('asset', `select asset_id as id from ${rows}`),
  };
}

/** A shortened id in SQL, as copied from a printed table. No column has such a value. */
const CUT_IN_SQL = /'[^'\s]*…[^'\s]*'/u;

/**
 * Refuses SQL that compares with a shortened id, because the comparison would find
 * nothing.
 * @throws UsageError if the SQL contains a shortened id
 */
export function refuseCutIds(sql: string): void {
  const [cut] = CUT_IN_SQL.exec(sql) ?? [];
  if (cut !== undefined)
    throw new UsageError([
      `query: ${cut} is the beginning of an id and never equals one; give the ` +
        `whole id, or write starts_with(party_id, ${cut.replace(/….*/u, "'")})`,
    ]);
}
