/**
 * The views that analysts read, and a role that may read them and nothing else. Loads are
 * single transactions, so no view ever shows half of a load.
 */
import { type Kysely, sql } from 'kysely';

const VIEWS = [
  // Every exported row, with its origin. An entry between two mirrored parties is in
  // both exports if the source's release sends both sides (0.71.6 and later). It counts
  // in the sender's export, and in the receiver's only if the sender's ledger is not
  // loaded for that asset and instant. Releases before 0.71.6 send only the sending side,
  // so such an entry appears once anyway.
  `create view mirror.exported_entries as
    select e.*,
      case when 'effect' = any(s.columns) then 'both' else 'from' end as sides,
      (e.party_id = e.account_from_party_id or not exists (
        select from mirror.segments other
         where other.party_id = e.account_from_party_id and other.loaded_at is not null
           and other.from_time <= e.vega_time and other.to_time > e.vega_time
           and (other.asset_id is null or other.asset_id = e.asset_id))) as is_counted
    from mirror.ledger_entries e join mirror.segments s using (segment_id)`,

  `create view mirror.entries as
    select party_id, vega_time, quantity, effect, transfer_type, asset_id,
      account_from_market_id, account_from_party_id, account_from_account_type, account_from_balance,
      account_to_market_id, account_to_party_id, account_to_account_type, account_to_balance,
      extra, segment_id, sides
    from mirror.exported_entries where is_counted`,

  `create view mirror.flows_daily as
    select (vega_time at time zone 'UTC')::date as day, asset_id, transfer_type,
      count(*) as entries, sum(quantity) as quantity, bool_and(sides = 'both') as both_sides
    from mirror.entries group by 1, 2, 3`,

  // Both accounts of each entry. Entries of one block share their time and have no order.
  `create view mirror.balances as
    select account_from_party_id as party_id, account_from_account_type as account_type,
      account_from_market_id as market_id, asset_id, vega_time, -quantity as change,
      account_from_balance as balance, transfer_type, segment_id, sides = 'both' as both_sides
    from mirror.entries
    union all
    select account_to_party_id, account_to_account_type, account_to_market_id, asset_id, vega_time,
      quantity, account_to_balance, transfer_type, segment_id, sides = 'both'
    from mirror.entries`,

  `create view mirror.fees_daily as
    select (vega_time at time zone 'UTC')::date as day, account_from_party_id as party_id, asset_id,
      transfer_type, count(*) as payments, sum(quantity) as paid
    from mirror.entries where transfer_type like '%\\_FEE\\_PAY' group by 1, 2, 3, 4`,

  `create view mirror.counterparties as
    select party_id, counterparty_id, asset_id, count(*) as entries, sum(sent) as sent,
      sum(received) as received, min(vega_time) as first_at, max(vega_time) as last_at,
      bool_and(sides = 'both') as both_sides
    from (
      select account_from_party_id as party_id, account_to_party_id as counterparty_id, asset_id, vega_time,
        quantity as sent, 0::numeric as received, sides from mirror.entries
      union all
      select account_to_party_id, account_from_party_id, asset_id, vega_time, 0, quantity, sides from mirror.entries
       where account_to_party_id is distinct from account_from_party_id) as moved
    group by 1, 2, 3`,

  `create view mirror.activity as
    select e.party_id, count(*) as entries, count(distinct (e.vega_time at time zone 'UTC')::date) as active_days,
      min(e.vega_time) as first_at, max(e.vega_time) as last_at,
      bool_and('effect' = any(s.columns)) as both_sides
    from mirror.ledger_entries e join mirror.segments s using (segment_id) group by 1`,

  `create view mirror.checkpoint_cadence as
    select epoch, at_block, copies, hashes,
      at_block - lag(at_block) over (partition by epoch order by at_block) as blocks_since_previous
    from (
      select epoch, at_block, sum(copies)::bigint as copies, count(*) as hashes
        from mirror.checkpoints group by epoch, at_block) as heights`,

  `create view mirror.segment_list as
    select segment_id, party_id, asset_id, from_time, to_time, open, object_key, rows, bytes, sha256, object_bytes,
      object_sha256, digest, columns, 'effect' = any(columns) as both_sides, status, run_id, published_at, loaded_at
    from mirror.segments`,

  `create view mirror.freshness as
    select subject, as_of, clock_timestamp() - as_of as age, items from (
      select 'list of ' || list as subject, max(claimed_at) as as_of, sum(rows)::bigint as items
        from mirror.generations where kind = 'current' group by list
      union all select 'checkpoint last seen first', max(first_seen_at), count(*) from mirror.checkpoints
      union all select 'ledger closed for every covered party', min(closed_to), count(*) from (
        select party_id, max(to_time) as closed_to from mirror.coverage where not open group by party_id) as closed
      union all select 'latest ledger entry', max(last_at), sum(entries)::bigint from mirror.activity
      union all select 'latest load', max(loaded_at), count(loaded_at) from mirror.segments where status = 'current'
      union all select 'segments not loaded yet', min(published_at), count(*) from mirror.segments
        where status = 'current' and loaded_at is null) as subjects`,
];

const NAMES = [
  'exported_entries',
  'entries',
  'flows_daily',
  'balances',
  'fees_daily',
  'counterparties',
  'activity',
  'checkpoint_cadence',
  'freshness',
  'segment_list',
].map((name) => `mirror.${name}`);

/**
 * Creates the role if possible. A role belongs to the whole server: it may exist already,
 * another migration may be creating it at the same time, or we may lack the right to
 * create it.
 */
const READER = `do $$ begin
  begin
    create role mirror_reader nologin;
  exception when duplicate_object or unique_violation or insufficient_privilege then null;
  end;
  if exists (select from pg_roles where rolname = 'mirror_reader') then
    grant usage on schema mirror to mirror_reader;
    grant select on ${NAMES.join(', ')} to mirror_reader;
  end if;
end $$`;

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const view of VIEWS) await sql.raw(view).execute(db);
  await sql.raw(READER).execute(db);
}
