/**
 * The console's questions about parties and their ledgers. Pages go by key, never by offset; sizes are
 * summed for the rows of a page only, so that a million parties cost what fifty do.
 */
import type {
  AccountQuestion,
  BalancePoint,
  FlowDay,
  PartiesQuestion,
  PartyLedger,
  PartyPage,
  PartySummary,
} from '../console-ports.ts';

/** Runs one statement of the store. */
export type Rows = <Row extends object>(action: string, text: string, values: unknown[]) => Promise<Row[]>;

/** For each row of `page`, which has a party_id: what is mirrored of its ledger. */
const SUMMARY = `
  select page.party_id as "partyId", page.key,
    coalesce(s.rows, 0)::text as rows, coalesce(s.bytes, 0)::text as bytes,
    u.last_entry_at as "lastEntryAt", u.quarantined_at as "quarantinedAt", c.known_to as "knownTo"
  from page
  left join lateral (
    select max(last_entry_at) as last_entry_at, max(quarantined_at) as quarantined_at
    from mirror.exports where party_id = page.party_id) u on true
  left join lateral (
    select sum(rows) as rows, sum(bytes) as bytes from mirror.segments
    where party_id = page.party_id and status = 'current') s on true
  left join lateral (
    select max(to_time) as known_to from mirror.coverage where party_id = page.party_id) c on true`;

/** What follows a prefix sorts below the last letter in every collation, where it is hex or a word. */
const BY_ID = `
  with page as materialized (
    select party_id, party_id as key from mirror.parties
    where party_id > $2 and party_id >= $1 and ($1 = '' or party_id < $1 || 'zz')
      and right(party_id, length($4)) = $4 order by party_id limit $3)
  ${SUMMARY} order by page.key`;

const EXPORT_PAGES = {
  recent: 'last_entry_at',
  quarantined: 'quarantined_at',
} as const;

function byExport(column: (typeof EXPORT_PAGES)[keyof typeof EXPORT_PAGES]): string {
  return `
  with page as materialized (
    select party_id, export_id::text as key, ${column} as at, export_id from mirror.exports
    where ${column} is not null and ($1::bigint is null or (${column}, export_id) <
      (select ${column}, export_id from mirror.exports where export_id = $1))
    order by ${column} desc, export_id desc limit $2)
  ${SUMMARY} order by page.at desc, page.export_id desc`;
}

type KeyedSummary = PartySummary & { readonly key: string };

export async function readParties(
  rows: Rows,
  { view, prefix, suffix, after, rowsMax }: PartiesQuestion,
): Promise<PartyPage> {
  const found =
    view === 'id'
      ? await rows<KeyedSummary>('list parties', BY_ID, [prefix, after ?? '', rowsMax + 1, suffix])
      : await rows<KeyedSummary>('list parties', byExport(EXPORT_PAGES[view]), [after, rowsMax + 1]);
  const shown = found.slice(0, rowsMax);
  // A party whose assets are asked one by one has an export for each.
  const parties = [...new Map(shown.map(({ key: _key, ...party }) => [party.partyId, party])).values()];
  return { parties, next: found.length > rowsMax ? (shown.at(-1)?.key ?? null) : null };
}

const PARTY = `
  with page as (select $1::text as party_id, '' as key)
  select summary.*, pa.first_seen_at as "firstSeenAt",
    exists (select from mirror.coverage where party_id = $1 and sides = 'from') as "isSentOnly",
    (select coalesce(json_agg(json_build_object('from', from_time, 'to', to_time, 'open', open, 'rows', rows) order by from_time), '[]')
      from (select k.from_time, k.to_time, k.open, s.rows::text as rows
        from mirror.coverage k left join mirror.segments s using (segment_id)
        where k.party_id = $1 order by k.from_time desc limit 200) known) as covered
  from (${SUMMARY}) summary left join mirror.parties pa on pa.party_id = summary."partyId"
  where pa.party_id is not null or summary."knownTo" is not null`;

/** A party may have millions of entries: accounts and charts are of its newest ones, which an index finds. */
const SUMMED_MAX = 20_000;
const NEWEST = `newest as (
    select vega_time, transfer_type, asset_id, quantity, account_from_party_id, account_from_account_type,
      account_from_market_id, account_from_balance, account_to_party_id, account_to_account_type, account_to_market_id,
      account_to_balance
    from mirror.ledger_entries where party_id = $1 order by vega_time desc limit ${SUMMED_MAX})`;

/** Its own accounts, as they stand in its own exports. */
const ACCOUNTS = `
  with ${NEWEST}
  select asset_id as "assetId", account_type as "accountType", market_id as "marketId",
    count(*)::text as entries, max(vega_time) as "lastAt"
  from newest cross join lateral (values
    (account_from_party_id, account_from_account_type, account_from_market_id),
    (account_to_party_id, account_to_account_type, account_to_market_id)) side(party_id, account_type, market_id)
  where side.party_id = $1 and account_type is not null
  group by 1, 2, 3 order by count(*) desc, 1, 2, 3 limit 200`;

const TYPES = `with ${NEWEST} select distinct transfer_type as type from newest order by 1 limit 200`;

export async function readParty(rows: Rows, partyId: string): Promise<PartyLedger | undefined> {
  const [[party], accounts, types] = await Promise.all([
    rows<Omit<PartyLedger, 'summedMax' | 'accounts' | 'transferTypes'> & { readonly key: string }>(
      'read a party',
      PARTY,
      [partyId],
    ),
    rows<PartyLedger['accounts'][number]>("list a party's accounts", ACCOUNTS, [partyId]),
    rows<{ type: string }>("list a party's transfer types", TYPES, [partyId]),
  ]);
  if (party === undefined) return undefined;
  const { key: _key, ...rest } = party;
  return { ...rest, summedMax: SUMMED_MAX, accounts, transferTypes: types.map(({ type }) => type) };
}

/**
 * Movements between two of its own accounts are neither received nor sent. The first day of what is read may lack
 * entries, where the ledger began before it.
 */
const FLOWS = `
  with ${NEWEST}
  select to_char(vega_time at time zone $3, 'YYYY-MM-DD') as day, count(*)::text as entries,
    coalesce(sum(quantity) filter (where account_to_party_id = $1 and account_from_party_id is distinct from $1), 0)::text as received,
    coalesce(sum(quantity) filter (where account_from_party_id = $1 and account_to_party_id is distinct from $1), 0)::text as sent
  from newest
  where asset_id = $2 and ((select count(*) from newest) < ${SUMMED_MAX}
    or date_trunc('day', vega_time, $3) > (select date_trunc('day', min(vega_time), $3) from newest))
  group by 1 order by 1`;

export function readFlows(rows: Rows, partyId: string, assetId: string, zone: string): Promise<FlowDay[]> {
  return rows<FlowDay>("sum up a ledger's flows", FLOWS, [partyId, assetId, zone]);
}

const BALANCE = `
  with ${NEWEST},
  moved as (
    select vega_time, case when account_to_party_id = $1 and account_to_account_type = $3
        and account_to_market_id is not distinct from $4 then account_to_balance else account_from_balance end as balance
    from newest
    where asset_id = $2
      and ((account_from_party_id = $1 and account_from_account_type = $3 and account_from_market_id is not distinct from $4)
        or (account_to_party_id = $1 and account_to_account_type = $3 and account_to_market_id is not distinct from $4))),
  bounds as materialized (
    select min(vega_time) as first, greatest(extract(epoch from max(vega_time) - min(vega_time)) / $5::int, 0.000001) as step
    from moved)
  select distinct on (part) at, balance from (
    select vega_time as at, balance::text as balance, floor(extract(epoch from vega_time - first) / step) as part
    from moved, bounds where balance is not null) parts
  order by part, at desc`;

export function readBalance(rows: Rows, question: AccountQuestion): Promise<BalancePoint[]> {
  const { partyId, assetId, accountType, marketId, pointsMax } = question;
  return rows<BalancePoint>("read an account's balance", BALANCE, [
    partyId,
    assetId,
    accountType,
    marketId ?? null,
    pointsMax,
  ]);
}
