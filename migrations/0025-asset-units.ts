/**
 * Amounts in whole units, exactly: the views multiplied by a quotient of powers, which
 * keeps 16 digits behind the point, so an amount of an asset with 18 decimals lost its last
 * ones. Assets from ASSETS_FILE are told apart from those that an owner has inserted.
 */
import { type Kysely, sql } from 'kysely';
import comments from './comments.json' with { type: 'json' };

/** Returns SQL for an amount in whole units. A product of decimals is exact at any size. */
const inUnits = (value: string): string =>
  `${value} * ('1e-' || a.decimals)::numeric`;

const fits = (value: string): string =>
  `(case when abs(${value}) < 1e38 then ${value} end)::numeric(38,0)`;

const STATEMENTS = [
  `alter table mirror.configured_assets
    add from_file boolean not null default false,
    drop constraint configured_assets_decimals_check,
    add constraint configured_assets_decimals_check check (decimals between 0 and 38)`,

  // Written as a function, so that it can be used on the sums of any view. The lake has a
  // macro of the same name.
  `create function mirror.in_units(amount numeric, asset text) returns numeric language sql stable parallel safe as $$
    select trim_scale(${inUnits('amount')}) from mirror.assets a where a.asset_id = asset
  $$`,
  `comment on function mirror.in_units(numeric, text) is
    'The amount in whole units of the asset, exact; NULL if mirror.assets lacks the asset'`,

  `create or replace view mirror.bi_entries as
    select e.segment_id, e.party_id, e.vega_time, (e.vega_time at time zone 'UTC')::date as day,
      date_trunc('month', e.vega_time at time zone 'UTC')::date as month,
      e.transfer_type, e.asset_id, a.symbol as asset_symbol,
      ${fits('e.quantity')} as quantity, e.quantity::text as quantity_text,
      ${inUnits('e.quantity')} as amount,
      e.account_from_market_id, e.account_from_party_id, e.account_from_account_type,
      ${fits('e.account_from_balance')} as account_from_balance, e.account_from_balance::text as account_from_balance_text,
      e.account_to_market_id, e.account_to_party_id, e.account_to_account_type,
      ${fits('e.account_to_balance')} as account_to_balance, e.account_to_balance::text as account_to_balance_text,
      e.sides, s.loaded_at
    from mirror.entries e join mirror.segments s using (segment_id)
      left join mirror.assets a on a.asset_id = e.asset_id`,

  `create or replace view mirror.latest_balances as
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
      ${fits('exact')} as balance, exact::text as balance_text, ${inUnits('exact')} as amount,
      ${fits('lowest')} as lowest, ${fits('highest')} as highest, candidates
    from resolved r left join mirror.assets a using (asset_id)`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const text of STATEMENTS) await sql.raw(text).execute(db);
  const described = comments.find(
    ({ relation }) => relation === 'mirror.assets',
  );
  if (described !== undefined)
    await sql`comment on view mirror.assets is ${sql.lit(described.text)}`.execute(
      db,
    );
}
