-- Each entry once. No column is unique: what is equal happened as often as it appears.
{% if target.type == 'duckdb' %}
select e.segment_id, e.party_id, e.vega_time, cast(e.vega_time at time zone 'UTC' as date) as day,
  cast(e.month || '-01' as date) as month, e.transfer_type, e.asset_id,
  e.quantity, coalesce(cast(e.quantity as varchar), e.quantity_text) as quantity_text,
  e.account_from_market_id, e.account_from_party_id, e.account_from_account_type,
  e.account_from_balance, coalesce(cast(e.account_from_balance as varchar), e.account_from_balance_text) as account_from_balance_text,
  e.account_to_market_id, e.account_to_party_id, e.account_to_account_type,
  e.account_to_balance, coalesce(cast(e.account_to_balance as varchar), e.account_to_balance_text) as account_to_balance_text,
  case when e.effect is null and e.effect_text is null then 'from' else 'both' end as sides
from {{ lake('ledger_entries') }} as e
-- An entry between two mirrored parties lies in both exports: the sender's counts, where it is mirrored.
where e.side in ('from', 'both') or not exists (
  select 1 from {{ lake('coverage') }} as c
  where c.party_id = e.account_from_party_id and (c.asset_id is null or c.asset_id = e.asset_id)
    and c.from_time <= e.vega_time and c.to_time > e.vega_time)
{% else %}
select * from {{ source('mirror', 'bi_entries') }}
{% endif %}
