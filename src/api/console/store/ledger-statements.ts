/**
 * The console's statements about parties and their ledgers. They page by key, never by
 * offset, and sum sizes only for the rows of one page. A page therefore costs the same
 * with a million parties as with fifty.
 */
import { type RawBuilder, sql } from 'kysely';
import {
  type RowOf,
  statement,
  type Statement,
} from '../../../postgres/statement.ts';

export const ENTRIES_PAGE = 50;
const BALANCE_POINTS_MAX = 600;

/** The columns of `SUMMARY`. Sums are decimal strings. */
const SUMMARY_COLUMNS = {
  partyId: 'text',
  key: 'text',
  rows: 'text',
  bytes: 'text',
  lastEntryAt: 'instant?',
  quarantinedAt: 'instant?',
  knownTo: 'instant?',
} as const;

/** One party of a page, with how much of its ledger is mirrored. */
type PartySummary = RowOf<typeof SUMMARY_COLUMNS>;

/**
 * For each row of `page`, which must have a `party_id`, selects how much of the party's
 * ledger is mirrored.
 */
const SUMMARY = sql`
  select page.party_id as "partyId", page.key,
    coalesce(s.rows, 0)::text as rows, coalesce(s.bytes, 0)::text as bytes,
    u.last_entry_at as "lastEntryAt", u.quarantined_at as "quarantinedAt",
    c.known_to as "knownTo"
  from page
  left join lateral (
    select max(last_entry_at) as last_entry_at, max(quarantined_at) as quarantined_at
    from mirror.exports where party_id = page.party_id) u on true
  left join lateral (
    select sum(rows) as rows, sum(bytes) as bytes from mirror.segments
    where party_id = page.party_id and status = 'current') s on true
  left join lateral (
    select max(to_time) as known_to
    from mirror.coverage where party_id = page.party_id) c on true`;

/**
 * Selects a page of parties in the order of their ids. `prefix || 'zz'` is an upper bound
 * for ids that begin with the prefix: the rest of such an id is hex or a word, which
 * sorts below `zz` in every collation.
 * @param after the id after which the page begins
 */
export function partiesById(
  { prefix, suffix }: { readonly prefix: string; readonly suffix: string },
  after: string,
  limit: number,
): Statement<PartySummary> {
  return statement(SUMMARY_COLUMNS)`
  with page as materialized (
    select party_id, party_id as key from mirror.parties
    where party_id > ${after} and party_id >= ${prefix}
      and (${prefix}::text = '' or party_id < ${prefix}::text || 'zz')
      and right(party_id, length(${suffix}::text)) = ${suffix}::text
    order by party_id limit ${limit})
  ${SUMMARY} order by page.key`;
}

/**
 * Selects a page of parties by a time of their exports, latest first.
 * @param after the id of the export after which the page begins; null for the first page
 */
export function partiesByExport(
  column: 'last_entry_at' | 'quarantined_at',
  after: string | null,
  limit: number,
): Statement<PartySummary> {
  const time = sql.ref(column);
  return statement(SUMMARY_COLUMNS)`
  with page as materialized (
    select party_id, export_id::text as key, ${time} as at, export_id
    from mirror.exports
    where ${time} is not null and (${after}::bigint is null or (${time}, export_id) < (
      select ${time}, export_id from mirror.exports where export_id = ${after}::bigint))
    order by ${time} desc, export_id desc limit ${limit})
  ${SUMMARY} order by page.at desc, page.export_id desc`;
}

const PARTY_COLUMNS = {
  ...SUMMARY_COLUMNS,
  firstSeenAt: 'instant?',
  isSentOnly: 'boolean',
  /** The newest covered ranges, oldest first. */
  covered: 'json',
} as const;

/** Selects one party; no row if the mirror does not know it. */
export function partyById(
  partyId: string,
): Statement<RowOf<typeof PARTY_COLUMNS>> {
  return statement(PARTY_COLUMNS)`
  with page as (select ${partyId}::text as party_id, '' as key)
  select summary.*, pa.first_seen_at as "firstSeenAt",
    exists (select from mirror.coverage where party_id = ${partyId} and sides = 'from')
      as "isSentOnly",
    (select coalesce(json_agg(json_build_object('from', from_time, 'to', to_time,
        'open', open, 'rows', rows) order by from_time), '[]')
      from (
        select k.from_time, k.to_time, k.open, s.rows::text as rows
        from mirror.coverage k left join mirror.segments s using (segment_id)
        where k.party_id = ${partyId} order by k.from_time desc limit 200) known) as covered
  from (${SUMMARY}) summary
  left join mirror.parties pa on pa.party_id = summary."partyId"
  where pa.party_id is not null or summary."knownTo" is not null`;
}

/**
 * Maximum number of a party's newest entries that its accounts and charts cover. A party
 * may have millions; an index finds the newest.
 */
export const SUMMED_MAX = 20_000;

/** The party's newest entries, as a part of a `with` clause. */
function newest(partyId: string): RawBuilder<unknown> {
  return sql`newest as (
    select * from mirror.ledger_entries
    where party_id = ${partyId} order by vega_time desc limit ${SUMMED_MAX})`;
}

const ACCOUNT_COLUMNS = {
  assetId: 'text',
  accountType: 'text',
  marketId: 'text?',
  entries: 'text',
  lastAt: 'instant',
} as const;

/** Selects the party's own accounts, as named in the party's exports. */
export function accountsOf(
  partyId: string,
): Statement<RowOf<typeof ACCOUNT_COLUMNS>> {
  return statement(ACCOUNT_COLUMNS)`
  with ${newest(partyId)}
  select asset_id as "assetId", account_type as "accountType", market_id as "marketId",
    count(*)::text as entries, max(vega_time) as "lastAt"
  from newest cross join lateral (values
    (account_from_party_id, account_from_account_type, account_from_market_id),
    (account_to_party_id, account_to_account_type, account_to_market_id)
  ) side(party_id, account_type, market_id)
  where side.party_id = ${partyId} and account_type is not null
  group by 1, 2, 3 order by count(*) desc, 1, 2, 3 limit 200`;
}

export function transferTypesOf(
  partyId: string,
): Statement<{ readonly type: string | null }> {
  return statement({ type: 'text?' })`
  with ${newest(partyId)}
  select distinct transfer_type as type from newest order by 1 limit 200`;
}

/** An account of one asset. */
interface Account {
  readonly assetId: string;
  readonly type: string;
  /** Null if the account does not belong to a market. */
  readonly marketId: string | null;
}

const FLOW_COLUMNS = {
  day: 'text',
  entries: 'text',
  received: 'text',
  sent: 'text',
} as const;

/**
 * Sums the amounts that a party received and sent, by day. Transfers between its own
 * accounts count as neither. If the ledger has older entries than those read, the first
 * day is omitted, because it may be incomplete.
 */
export function flowsOf(
  partyId: string,
  assetId: string,
  zone: string,
): Statement<RowOf<typeof FLOW_COLUMNS>> {
  return statement(FLOW_COLUMNS)`
  with ${newest(partyId)}
  select to_char(vega_time at time zone ${zone}, 'YYYY-MM-DD') as day, count(*)::text as entries,
    coalesce(sum(quantity) filter (
      where account_to_party_id = ${partyId} and account_from_party_id is distinct from ${partyId}), 0)::text
      as received,
    coalesce(sum(quantity) filter (
      where account_from_party_id = ${partyId} and account_to_party_id is distinct from ${partyId}), 0)::text
      as sent
  from newest
  where asset_id = ${assetId} and ((select count(*) from newest) < ${SUMMED_MAX}
    or date_trunc('day', vega_time, ${zone}) > (
      select date_trunc('day', min(vega_time), ${zone}) from newest))
  group by 1 order by 1`;
}

/**
 * Selects the balance of an account over time, as the last balance in each of several
 * equal intervals.
 */
export function balanceOf(
  partyId: string,
  { assetId, type, marketId }: Account,
): Statement<{ readonly at: string; readonly balance: string }> {
  const isFrom = sql`account_from_party_id = ${partyId}
    and account_from_account_type = ${type}
    and account_from_market_id is not distinct from ${marketId}`;
  const isTo = sql`account_to_party_id = ${partyId}
    and account_to_account_type = ${type}
    and account_to_market_id is not distinct from ${marketId}`;
  return statement({ at: 'instant', balance: 'text' })`
  with ${newest(partyId)},
  moved as (
    select vega_time,
      case when ${isTo} then account_to_balance else account_from_balance end as balance
    from newest
    where asset_id = ${assetId} and ((${isFrom}) or (${isTo}))),
  bounds as materialized (
    select min(vega_time) as first,
      greatest(
        extract(epoch from max(vega_time) - min(vega_time)) / ${BALANCE_POINTS_MAX},
        0.000001) as step
    from moved)
  select distinct on (part) at, balance from (
    select vega_time as at, balance::text as balance,
      floor(extract(epoch from vega_time - first) / step) as part
    from moved, bounds where balance is not null) parts
  order by part, at desc`;
}

/** Which of a party's entries to list; null stands for all. */
interface EntryFilter {
  readonly assetId: string | null;
  readonly type: string | null;
  /** Days in UTC; both are included. */
  readonly since: string | null;
  readonly until: string | null;
  /** The instant from which the page goes back; null for the first page. */
  readonly from: string | null;
  /** How many rows of that instant to skip, as a decimal string. */
  readonly seenBefore: string;
}

const ENTRY_COLUMNS = {
  at: 'text',
  transferType: 'text?',
  assetId: 'text',
  quantity: 'text',
  fromParty: 'text?',
  fromAccount: 'text?',
  fromBalance: 'text?',
  toParty: 'text?',
  toAccount: 'text?',
  toBalance: 'text?',
} as const;

/**
 * Selects a page of entries, newest first, plus one row if there are more. Entries of one
 * instant may be identical, so no key distinguishes them. A page therefore resumes by
 * skipping a number of rows of that instant.
 */
export function entriesOf(
  partyId: string,
  { assetId, type, since, until, from, seenBefore }: EntryFilter,
): Statement<RowOf<typeof ENTRY_COLUMNS>> {
  return statement(ENTRY_COLUMNS)`
  select to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at,
    transfer_type as "transferType", asset_id as "assetId", quantity::text as quantity,
    account_from_party_id as "fromParty", account_from_account_type as "fromAccount",
    account_from_balance::text as "fromBalance", account_to_party_id as "toParty",
    account_to_account_type as "toAccount", account_to_balance::text as "toBalance"
  from mirror.ledger_entries
  where party_id = ${partyId} and (${assetId}::text is null or asset_id = ${assetId})
    and (${type}::text is null or transfer_type = ${type})
    and vega_time >= coalesce(${since}::date::timestamp at time zone 'UTC', '-infinity')
    and vega_time < coalesce((${until}::date + 1)::timestamp at time zone 'UTC', 'infinity')
    and vega_time <= coalesce(${from}::timestamptz, 'infinity')
  order by vega_time desc, segment_id, tableoid, ctid
  offset ${seenBefore}::int limit ${ENTRIES_PAGE + 1}`;
}
