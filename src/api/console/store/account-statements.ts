/**
 * The SQL of an account statement: what one party's accounts held at the beginning and
 * the end of a month (UTC), each change in between, and how much of the month is known.
 */
import { type RawBuilder, sql } from 'kysely';
import {
  type RowOf,
  statement,
  type Statement,
  typed,
} from '../../../postgres/statement.ts';
import { SUMMED_MAX } from './ledger-statements.ts';

/** A party and a month, given as the month's first day. */
export interface StatementRange {
  readonly partyId: string;
  readonly month: string;
}

const startOf = (month: string): RawBuilder<unknown> =>
  sql`(${month}::date::timestamp at time zone 'UTC')`;
const endOf = (month: string): RawBuilder<unknown> =>
  sql`((${month}::date + interval '1 month') at time zone 'UTC')`;

/**
 * Selects, for each entry in `rows`, the sides that belong to the party.
 * @param rows a query on `mirror.ledger_entries`
 */
function ownSides(rows: RawBuilder<unknown>, partyId: string) {
  return sql`
    select e.vega_time, e.asset_id, e.transfer_type, side.account_type, side.market_id,
      side.counterparty_id, side.change, side.balance
    from ${rows} e cross join lateral (values
      (e.account_from_party_id, e.account_from_account_type, e.account_from_market_id,
        e.account_to_party_id, -e.quantity, e.account_from_balance),
      (e.account_to_party_id, e.account_to_account_type, e.account_to_market_id,
        e.account_from_party_id, e.quantity, e.account_to_balance)
    ) side(party_id, account_type, market_id, counterparty_id, change, balance)
    where side.party_id = ${partyId} and side.account_type is not null`;
}

function ofMonth({ partyId, month }: StatementRange): RawBuilder<unknown> {
  return sql`(
    select * from mirror.ledger_entries where party_id = ${partyId}
      and vega_time >= ${startOf(month)} and vega_time < ${endOf(month)})`;
}

/**
 * The candidates for a balance, as a JSON array of decimal strings. The entries of a
 * block have no order, so the last block may leave several candidates.
 */
const ACCOUNT_COLUMNS = {
  assetId: 'text',
  accountType: 'text',
  marketId: 'text?',
  entries: 'text',
  received: 'text',
  sent: 'text',
  /** The last balance before the month; null if none was read. */
  before: typed<readonly string[] | null>('json?'),
  /** The balance before the month's first entry; null if the month has no entries. */
  first: typed<readonly string[] | null>('json?'),
  /** The last balance before the month's end. */
  closing: typed<readonly string[] | null>('json?'),
} as const;

export type MonthAccount = RowOf<typeof ACCOUNT_COLUMNS>;

/**
 * Selects the party's accounts with their balances. Only the newest `SUMMED_MAX` entries
 * from before the month are read.
 *
 * The entries of a block form a chain: the balance after an entry is the balance before
 * the next one. Such pairs of equal balances cancel out, so only the block's first and
 * last balances remain.
 */
export function accountsOfMonth(
  range: StatementRange,
): Statement<MonthAccount> {
  const { partyId, month } = range;
  const earlier = sql`(
    select * from mirror.ledger_entries
    where party_id = ${partyId} and vega_time < ${startOf(month)}
    order by vega_time desc limit ${SUMMED_MAX})`;
  return statement(ACCOUNT_COLUMNS)`
  with own as materialized (
    select *, true as in_month from (${ownSides(ofMonth(range), partyId)}) month
    union all
    select *, false from (${ownSides(earlier, partyId)}) earlier),
  timed as (
    select *,
      max(vega_time) filter (where balance is not null and not in_month) over account as before_at,
      min(vega_time) filter (where balance is not null and in_month) over account as first_at,
      max(vega_time) filter (where balance is not null) over account as closing_at
    from own window account as (partition by asset_id, account_type, market_id)),
  candidates as (
    select asset_id, account_type, market_id, which, value, sum(weight) as weight,
      bool_or(weight > 0) as is_end
    from timed cross join lateral (values
      ('before', vega_time = before_at and not in_month, balance, 1),
      ('before', vega_time = before_at and not in_month, balance - change, -1),
      ('first', vega_time = first_at and in_month, balance - change, 1),
      ('first', vega_time = first_at and in_month, balance, -1),
      ('closing', vega_time = closing_at, balance, 1),
      ('closing', vega_time = closing_at, balance - change, -1)
    ) candidate(which, is_there, value, weight)
    where is_there and balance is not null
    group by asset_id, account_type, market_id, which, value),
  -- A block that ends with the balance that it began with leaves nothing over.
  balances as (
    select asset_id, account_type, market_id, which,
      coalesce(
        json_agg(value::text order by value) filter (where weight > 0),
        json_agg(value::text order by value) filter (where is_end)) as found
    from candidates group by asset_id, account_type, market_id, which)
  select o.asset_id as "assetId", o.account_type as "accountType", o.market_id as "marketId",
    count(*) filter (where in_month)::text as entries,
    coalesce(sum(change) filter (where in_month and change > 0), 0)::text as received,
    coalesce(-sum(change) filter (where in_month and change < 0), 0)::text as sent,
    (select found from balances b where (b.asset_id, b.account_type, b.which) =
      (o.asset_id, o.account_type, 'before') and b.market_id is not distinct from o.market_id)
      as before,
    (select found from balances b where (b.asset_id, b.account_type, b.which) =
      (o.asset_id, o.account_type, 'first') and b.market_id is not distinct from o.market_id)
      as first,
    (select found from balances b where (b.asset_id, b.account_type, b.which) =
      (o.asset_id, o.account_type, 'closing') and b.market_id is not distinct from o.market_id)
      as closing
  from own o group by o.asset_id, o.account_type, o.market_id
  order by o.asset_id, o.account_type, o.market_id`;
}

const LINE_COLUMNS = {
  at: 'instant',
  assetId: 'text',
  accountType: 'text',
  marketId: 'text?',
  transferType: 'text?',
  counterpartyId: 'text?',
  change: 'text',
  balance: 'text?',
} as const;

export type MonthLine = RowOf<typeof LINE_COLUMNS>;

/** Selects the changes of the party's accounts in the month, sorted by time. */
export function linesOfMonth(
  range: StatementRange,
  limit: number,
): Statement<MonthLine> {
  return statement(LINE_COLUMNS)`
  select vega_time as at, asset_id as "assetId", account_type as "accountType",
    market_id as "marketId", transfer_type as "transferType",
    counterparty_id as "counterpartyId", change::text as change, balance::text as balance
  from (${ownSides(ofMonth(range), range.partyId)}) line
  order by vega_time, asset_id, account_type, market_id, change, balance limit ${limit}`;
}

/** A range that is not covered; the asset is null if all assets are exported together. */
interface Hole {
  readonly assetId: string | null;
  readonly from: string;
  readonly to: string;
  /** Whether it extends to the present, because the month is not over. */
  readonly isNow: boolean;
  /** Whether it begins with the month. */
  readonly isFromStart: boolean;
}

const KNOWLEDGE_COLUMNS = {
  /** The ranges of the month so far that are not covered. */
  missing: typed<readonly Hole[]>('json'),
  /** The instant up to which the ledger is known; null if it was never exported. */
  knownTo: 'instant?',
  /** Whether a range of the month has only what the party sends. */
  isSentOnly: 'boolean',
  hasBegun: 'boolean',
  isOver: 'boolean',
  notLoaded: 'text',
  /** Segments of the month that are not trusted. */
  faulty: 'text',
  isQuarantined: 'boolean',
} as const;

export type MonthKnowledge = RowOf<typeof KNOWLEDGE_COLUMNS>;

/**
 * Selects how much of the month is known.
 * @param assetIds the assets that are exported one by one; empty if all are exported
 *   together
 */
export function knowledgeOfMonth(
  { partyId, month }: StatementRange,
  assetIds: readonly string[],
): Statement<MonthKnowledge> {
  return statement(KNOWLEDGE_COLUMNS)`
  with asked as (
    select tstzrange(${startOf(month)}, greatest(${startOf(month)},
      least(${endOf(month)}, clock_timestamp()))) as range),
  known as (
    select k.*, s.loaded_at, s.status, tstzrange(k.from_time, k.to_time) as range
    from mirror.coverage k left join mirror.segments s using (segment_id), asked
    where k.party_id = ${partyId} and tstzrange(k.from_time, k.to_time) && asked.range),
  wanted as (
    select unnest(case when cardinality(${assetIds}::text[]) = 0 then array[null::text]
      else ${assetIds}::text[] end) as asset_id)
  select
    (select coalesce(json_agg(json_build_object('assetId', asset_id,
        'from', lower(hole), 'to', upper(hole), 'isNow',
        upper(hole) = upper(asked.range) and upper(hole) < ${endOf(month)},
        'isFromStart', lower(hole) = ${startOf(month)}) order by asset_id, lower(hole)), '[]')
      from wanted, asked, lateral unnest(tstzmultirange(asked.range) - coalesce(
        (select range_agg(known.range) from known
          where known.asset_id is null or known.asset_id = wanted.asset_id),
        '{}'::tstzmultirange)) hole) as missing,
    (select max(to_time) from mirror.coverage where party_id = ${partyId}) as "knownTo",
    exists (select from known where sides = 'from') as "isSentOnly",
    ${startOf(month)} <= clock_timestamp() as "hasBegun",
    ${endOf(month)} <= clock_timestamp() as "isOver",
    (select count(*) from known where segment_id is not null and loaded_at is null)::text
      as "notLoaded",
    (select count(*) from known where differs_from_manifest or status <> 'current')::text
      as faulty,
    exists (select from mirror.exports
      where party_id = ${partyId} and quarantined_at is not null) as "isQuarantined"`;
}
