/**
 * The views that business-intelligence tools and dbt read: types that their drivers
 * preserve to the last digit, one row for each account, amounts in whole units of assets,
 * and the months that changed since a reader last looked.
 */
import { type Kysely, sql } from 'kysely';
import comments from './comments.json' with { type: 'json' };

/**
 * Returns SQL for the value as a decimal(38,0), or null if it has more digits than that;
 * a driver would round such a value or fail. The text column next to it has every digit.
 */
const fits = (value: string): string =>
  `(case when abs(${value}) < 1e38 then ${value} end)::numeric(38,0)`;

const STATEMENTS = [
  // Readers can read only views; the owner fills this table through its view.
  `create table mirror.configured_assets (
    asset_id text primary key check (asset_id ~ '^[0-9a-f]{64}$'),
    symbol text not null,
    decimals smallint not null check (decimals between 0 and 37))`,

  `create view mirror.assets as select asset_id, symbol, decimals from mirror.configured_assets`,

  `create view mirror.bi_entries as
    select e.segment_id, e.party_id, e.vega_time, (e.vega_time at time zone 'UTC')::date as day,
      date_trunc('month', e.vega_time at time zone 'UTC')::date as month,
      e.transfer_type, e.asset_id, a.symbol as asset_symbol,
      ${fits('e.quantity')} as quantity, e.quantity::text as quantity_text,
      e.quantity / power(10::numeric, a.decimals) as amount,
      e.account_from_market_id, e.account_from_party_id, e.account_from_account_type,
      ${fits('e.account_from_balance')} as account_from_balance, e.account_from_balance::text as account_from_balance_text,
      e.account_to_market_id, e.account_to_party_id, e.account_to_account_type,
      ${fits('e.account_to_balance')} as account_to_balance, e.account_to_balance::text as account_to_balance_text,
      e.sides, s.loaded_at
    from mirror.entries e join mirror.segments s using (segment_id)
      left join mirror.assets a on a.asset_id = e.asset_id`,

  // Every entry of an account leads from one balance to the next. Within the account's
  // last block, in whatever order, the last balance is the one that entries lead to once
  // more often than they lead away from it.
  `create view mirror.latest_balances as
    with last_block as (
      select b.*, max(vega_time) over (
        partition by party_id, account_type, market_id, asset_id) as last_time
      from mirror.balances b where balance is not null),
    steps as (
      select party_id, account_type, market_id, asset_id, vega_time, balance, balance - change as former
      from last_block where vega_time = last_time),
    visits as (
      select party_id, account_type, market_id, asset_id, vega_time, value, sum(arrived) as surplus, max(arrived) as is_end
      from (select party_id, account_type, market_id, asset_id, vega_time, balance as value, 1 as arrived from steps
        union all
        select party_id, account_type, market_id, asset_id, vega_time, former, -1 from steps) as visited
      group by 1, 2, 3, 4, 5, 6),
    ends as (
      select party_id, account_type, market_id, asset_id, vega_time,
        count(*) filter (where is_end = 1) as candidates,
        count(*) filter (where surplus > 0) as surpluses, sum(surplus) filter (where surplus > 0) as surplus,
        min(value) filter (where surplus > 0) as surplus_value,
        min(value) filter (where is_end = 1) as lowest, max(value) filter (where is_end = 1) as highest
      from visits group by 1, 2, 3, 4, 5),
    resolved as (
      select *, case when candidates = 1 then lowest
        when surpluses = 1 and surplus = 1 then surplus_value end as exact from ends)
    select r.party_id, r.account_type, r.market_id, r.asset_id, a.symbol as asset_symbol, r.vega_time as as_of,
      exact is not null as is_resolved,
      ${fits('exact')} as balance, exact::text as balance_text, exact / power(10::numeric, a.decimals) as amount,
      ${fits('lowest')} as lowest, ${fits('highest')} as highest, candidates
    from resolved r left join mirror.assets a using (asset_id)`,

  `create view mirror.party_list as
    select party_id, epoch, first_seen_at, last_seen_at, gone_since from mirror.parties`,

  `create view mirror.checkpoint_list as
    select epoch, at_block::numeric(38,0) as at_block, at_block::text as at_block_text, hash, block_hash,
      copies, first_seen_at, gone_since
    from mirror.checkpoints`,

  `create view mirror.run_list as
    select run_id, parent_run_id, kind, subject, state, verdict, queued_at, started_at, finished_at,
      extract(epoch from finished_at - started_at)::bigint as seconds, evidence::text as evidence_json
    from mirror.runs`,

  // The loaded segments determine the rows of a month and whether each row counts. So
  // two readings of the same version see the same rows. The version changes for late
  // loads, replaced open segments and rows whose counting changes.
  `create view mirror.changed_months as
    with spans as (
      select segment_id, loaded_at, date_trunc('month', greatest(from_time, first_at) at time zone 'UTC') as first_month,
        date_trunc('month', least(to_time, last_at) at time zone 'UTC') as last_month
      from mirror.segments, (select min(vega_time) as first_at, max(vega_time) as last_at from mirror.ledger_entries) as held
      where loaded_at is not null and first_at is not null)
    select month::date as month, max(loaded_at) as changed_at, count(*) as segments,
      md5(string_agg(segment_id || '@' || extract(epoch from loaded_at), ',' order by segment_id)) as version
    from spans, generate_series(first_month, last_month, interval '1 month') as month
    group by month`,

  `create view mirror.source_freshness as
    select key, as_of from (
      select 'nightly_complete' as key, max(finished_at) as as_of from mirror.runs
        where kind = 'nightly' and verdict = 'complete'
      union all select 'nightly_ended', max(finished_at) from mirror.runs where kind = 'nightly' and state = 'done'
      union all select 'latest_load', max(loaded_at) from mirror.segments
      union all select 'latest_entry', max(vega_time) from mirror.ledger_entries
      union all select 'latest_checkpoint', max(first_seen_at) from mirror.checkpoints
      union all select 'latest_party', max(first_seen_at) from mirror.parties) as known`,
];

const READABLE = [
  'assets',
  'bi_entries',
  'latest_balances',
  'party_list',
  'checkpoint_list',
  'run_list',
  'changed_months',
  'source_freshness',
].map((name) => `mirror.${name}`);

const GRANT = `do $$ begin
  if exists (select from pg_roles where rolname = 'mirror_reader') then
    grant select on ${READABLE.join(', ')} to mirror_reader;
  end if;
end $$`;

interface Described {
  readonly relation: string;
  readonly text: string;
  readonly columns: Readonly<Record<string, string>>;
}

/**
 * Adds comments to the existing tables and columns, for readers who see only the
 * database.
 */
async function comment(
  db: Kysely<unknown>,
  { relation, text, columns }: Described,
): Promise<void> {
  const { rows } = await sql<{ kind: string; columns: string[] }>`
    select relkind::text as kind, array(select attname::text from pg_attribute
      where attrelid = c.oid and attnum > 0 and not attisdropped) as columns
    from pg_class c where oid = to_regclass(${relation})`.execute(db);
  const [found] = rows;
  if (found === undefined) return;
  const target = sql.raw(
    `${found.kind === 'v' ? 'view' : 'table'} ${relation}`,
  );
  await sql`comment on ${target} is ${sql.lit(text)}`.execute(db);
  for (const [column, meaning] of Object.entries(columns)) {
    if (!found.columns.includes(column)) continue;
    await sql`comment on column ${sql.raw(`${relation}.${column}`)} is ${sql.lit(meaning)}`.execute(
      db,
    );
  }
}

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
  await sql.raw(GRANT).execute(db);
  for (const described of comments as readonly Described[])
    await comment(db, described);
}
