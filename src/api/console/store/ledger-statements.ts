/**
 * The console's statements about parties and their ledgers. They page by key, never by
 * offset, and sum sizes only for the rows of one page. A page therefore costs the same
 * with a million parties as with fifty.
 */

export const ENTRIES_PAGE = 50;
const BALANCE_POINTS_MAX = 600;

/**
 * For each row of `page`, which must have a `party_id`, selects how much of the party's
 * ledger is mirrored.
 */
const SUMMARY = `
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
 * Parties in the order of their ids. `$1 || 'zz'` is an upper bound for ids that begin
 * with `$1`: what follows the prefix is hex or a word, and sorts below `zz` in every
 * collation.
 */
const BY_ID = `
  with page as materialized (
    select party_id, party_id as key from mirror.parties
    where party_id > $2 and party_id >= $1 and ($1 = '' or party_id < $1 || 'zz')
      and right(party_id, length($4)) = $4 order by party_id limit $3)
  ${SUMMARY} order by page.key`;

function byExport(column: 'last_entry_at' | 'quarantined_at'): string {
  return `
  with page as materialized (
    select party_id, export_id::text as key, ${column} as at, export_id
    from mirror.exports
    where ${column} is not null and ($1::bigint is null or (${column}, export_id) < (
      select ${column}, export_id from mirror.exports where export_id = $1))
    order by ${column} desc, export_id desc limit $2)
  ${SUMMARY} order by page.at desc, page.export_id desc`;
}

/** The statements for a page of parties, in each order: by id, or by their exports. */
export const PARTIES = {
  id: BY_ID,
  recent: byExport('last_entry_at'),
  quarantined: byExport('quarantined_at'),
} as const;

export const PARTY = `
  with page as (select $1::text as party_id, '' as key)
  select summary.*, pa.first_seen_at as "firstSeenAt",
    exists (select from mirror.coverage where party_id = $1 and sides = 'from')
      as "isSentOnly",
    (select coalesce(json_agg(json_build_object('from', from_time, 'to', to_time,
        'open', open, 'rows', rows) order by from_time), '[]')
      from (
        select k.from_time, k.to_time, k.open, s.rows::text as rows
        from mirror.coverage k left join mirror.segments s using (segment_id)
        where k.party_id = $1 order by k.from_time desc limit 200) known) as covered
  from (${SUMMARY}) summary
  left join mirror.parties pa on pa.party_id = summary."partyId"
  where pa.party_id is not null or summary."knownTo" is not null`;

/**
 * Maximum number of a party's newest entries that its accounts and charts cover. A party
 * may have millions; an index finds the newest.
 */
export const SUMMED_MAX = 20_000;
const NEWEST = `newest as (
    select * from mirror.ledger_entries
    where party_id = $1 order by vega_time desc limit ${SUMMED_MAX})`;

/** The party's own accounts, as named in the party's exports. */
export const ACCOUNTS = `
  with ${NEWEST}
  select asset_id as "assetId", account_type as "accountType", market_id as "marketId",
    count(*)::text as entries, max(vega_time) as "lastAt"
  from newest cross join lateral (values
    (account_from_party_id, account_from_account_type, account_from_market_id),
    (account_to_party_id, account_to_account_type, account_to_market_id)
  ) side(party_id, account_type, market_id)
  where side.party_id = $1 and account_type is not null
  group by 1, 2, 3 order by count(*) desc, 1, 2, 3 limit 200`;

export const TYPES = `
  with ${NEWEST}
  select distinct transfer_type as type from newest order by 1 limit 200`;

/**
 * Amounts that a party received and sent, by day. Transfers between its own accounts
 * count as neither. If the ledger has older entries than those read, the first day is
 * omitted, because it may be incomplete.
 */
export const FLOWS = `
  with ${NEWEST}
  select to_char(vega_time at time zone $3, 'YYYY-MM-DD') as day, count(*)::text as entries,
    coalesce(sum(quantity) filter (
      where account_to_party_id = $1 and account_from_party_id is distinct from $1), 0)::text
      as received,
    coalesce(sum(quantity) filter (
      where account_from_party_id = $1 and account_to_party_id is distinct from $1), 0)::text
      as sent
  from newest
  where asset_id = $2 and ((select count(*) from newest) < ${SUMMED_MAX}
    or date_trunc('day', vega_time, $3) > (
      select date_trunc('day', min(vega_time), $3) from newest))
  group by 1 order by 1`;

/**
 * The balance of an account over time, as the last balance in each of several equal
 * intervals.
 */
export const BALANCE = `
  with ${NEWEST},
  moved as (
    select vega_time,
      case
        when account_to_party_id = $1 and account_to_account_type = $3
          and account_to_market_id is not distinct from $4
        then account_to_balance else account_from_balance end as balance
    from newest
    where asset_id = $2
      and ((account_from_party_id = $1 and account_from_account_type = $3
          and account_from_market_id is not distinct from $4)
        or (account_to_party_id = $1 and account_to_account_type = $3
          and account_to_market_id is not distinct from $4))),
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

/**
 * Entries of one instant may be identical, so no key distinguishes them. A page therefore
 * resumes by skipping a number of rows of that instant.
 */
export const ENTRIES = `
  select to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at,
    transfer_type as "transferType", asset_id as "assetId", quantity::text as quantity,
    account_from_party_id as "fromParty", account_from_account_type as "fromAccount",
    account_from_balance::text as "fromBalance", account_to_party_id as "toParty",
    account_to_account_type as "toAccount", account_to_balance::text as "toBalance"
  from mirror.ledger_entries
  where party_id = $1 and ($2::text is null or asset_id = $2)
    and ($3::text is null or transfer_type = $3)
    and vega_time >= coalesce($4::date::timestamp at time zone 'UTC', '-infinity')
    and vega_time < coalesce(($5::date + 1)::timestamp at time zone 'UTC', 'infinity')
    and vega_time <= coalesce($6::timestamptz, 'infinity')
  order by vega_time desc, segment_id, tableoid, ctid offset $7::int limit ${ENTRIES_PAGE + 1}`;
