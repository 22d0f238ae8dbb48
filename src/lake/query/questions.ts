/**
 * Questions that analysts ask every day, ready to run by name. An entry between two
 * mirrored parties counts once. Whole months are answered from their summaries, so the
 * cost of a question grows with the number of months and not of entries.
 */
import type { DuckDBConnection } from '@duckdb/node-api';
import { UsageError } from '../../errors/errors.ts';
import { CANDIDATES_MAX, chooseById, splitCutId } from '../../ledger/ids.ts';
import { nowMicros } from '../../time/time.ts';
import { readTypedRange } from '../../time/typed-range.ts';
import type { SummaryTable } from '../tables/columns.ts';
import { type InstantRange, summaryWithin } from '../tables/summaries.ts';

export interface ReadyQuestion {
  readonly name: string;
  readonly title: string;
  /** The options that the question takes. */
  readonly parameters: readonly QuestionParameter[];
  /** The summary that the question reads; undefined if it reads another table. */
  readonly summary: SummaryTable | undefined;
  /** A note that is shown if a row of the answer has `both_sides` false. */
  readonly oneSided?: string;
  /**
   * Returns the question's SQL.
   * @param rows SQL for FROM: the summary within the requested range
   */
  readonly select: (rows: string) => string;
}

export type QuestionParameter = 'since' | 'until' | 'month' | 'party' | 'asset';

/**
 * The values of the options. An absent option sets no limit. Times are in the form that
 * users type; `since` is inclusive, `until` is exclusive, and `month` sets both.
 */
export type QuestionValues = Readonly<
  Partial<Record<QuestionParameter, string>>
>;

/**
 * A question with its options applied, in the form that `openLake` and `runQuery`
 * accept.
 */
export interface Inquiry {
  readonly sql: string;
  /** SQL for FROM: the rows that the question reads; empty if it reads no summary. */
  readonly rows: string;
  readonly range: InstantRange;
  /** Values of `$name` in the SQL; null stands for NULL. */
  readonly parameters: Readonly<Record<'party' | 'asset', string | null>>;
}

const OF_ASSET = `(cast($asset as varchar) is null or asset_id = $asset)`;
const OF_PARTY = `(cast($party as varchar) is null or party_id = $party)`;

/**
 * SQL: whether some range of `party_id`'s ledger was exported by a release that sends
 * one side only, or the ledger was not exported at all. In both cases, the amounts that
 * the party received from others are unknown.
 */
const IS_ONE_SIDED = `(party_id not in (select party_id from coverage where both_sides)
    or party_id in (select party_id from coverage where not both_sides))`;

export const READY_QUESTIONS: readonly ReadyQuestion[] = [
  {
    name: 'top-parties',
    title:
      'the twenty parties with the most entries, a row for each asset: what went ' +
      'to others, came from others, moved within',
    parameters: ['since', 'until', 'month', 'asset'],
    summary: 'monthly_activity',
    oneSided:
      'both_sides false: the ledger is not exported with both sides, so what the ' +
      'party received is not known, and is empty here.',
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
    summary: 'daily_flows',
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
    summary: 'monthly_fees',
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
      "each account's balance after its last entry; more than one if its last block " +
      'does not show which came last',
    parameters: ['until', 'party', 'asset'],
    summary: 'monthly_balances',
    oneSided:
      'both_sides false: the ledger is not exported with both sides, so later ' +
      'entries into the account may be missing.',
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
    summary: undefined,
    select: () => `with heights as (
  select epoch, at_block, count(*) as at_height, at_block - lag(at_block) over (partition by epoch order by at_block) as gap
    from checkpoints group by epoch, at_block)
select epoch, sum(at_height) as checkpoints, count(*) as heights, min(at_block) as first_block, max(at_block) as last_block,
       median(gap) as median_gap, max(gap) as widest_gap,
       case when max(gap) > median(gap) then first(at_block order by gap desc nulls last, at_block) end as widest_gap_ends_at
  from heights group by epoch order by epoch`,
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
  { summary, select }: ReadyQuestion,
  values: QuestionValues = {},
): Inquiry {
  const { start, end, problems } = readTypedRange(
    { start: values.since, end: values.until, month: values.month },
    { start: 'since', end: 'until' },
    nowMicros(),
  );
  if (problems.length > 0) throw new UsageError(problems);
  const range = { since: start, until: end };
  const rows =
    summary === undefined ? '' : `(${summaryWithin(summary, range)})`;
  const { party = null, asset = null } = values;
  return { sql: select(rows), rows, range, parameters: { party, asset } };
}

/** SQL for all party ids; used to complete a shortened id. */
export const KNOWN_PARTIES =
  'select party_id as id from parties union select party_id from coverage';

/** Whether any ledger was exported with one side only. */
export async function hasOneSided(
  connection: DuckDBConnection,
): Promise<boolean> {
  const reader = await connection.runAndReadAll(
    'select count(*) > 0 from coverage where not both_sides',
  );
  return reader.getRows()[0]?.[0] === true;
}

/**
 * Replaces shortened ids with the complete ones.
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

/** A shortened id in SQL, copied from a table. No column has such a value. */
const CUT_IN_SQL = /'[^'\s]*…[^'\s]*'/u;

/**
 * Refuses SQL that compares with a shortened id.
 * @throws UsageError if the SQL has a shortened id: the comparison would find nothing
 */
export function refuseCutIds(sql: string): void {
  const [cut] = CUT_IN_SQL.exec(sql) ?? [];
  if (cut !== undefined)
    throw new UsageError([
      `query: ${cut} is the beginning of an id and never equals one; give the ` +
        `whole id, or write starts_with(party_id, ${cut.replace(/….*/u, "'")})`,
    ]);
}
