-- One row for each account. Where its last block leaves the balance open, it is not resolved.
{% if target.type == 'duckdb' %}
with parts as (
  select *, max(as_of) over (partition by party_id, asset_id, account_type, market_id) as last_at,
    coalesce(cast(balance as varchar), balance_text) as value
  from {{ lake('monthly_balances') }})
select party_id, account_type, market_id, asset_id, as_of, count(distinct value) = 1 as is_resolved,
  case when count(distinct value) = 1 then min(value) end as balance_text
from parts where as_of = last_at and value is not null
group by party_id, account_type, market_id, asset_id, as_of
{% else %}
select party_id, account_type, market_id, asset_id, as_of, is_resolved, balance_text
from {{ source('mirror', 'latest_balances') }}
{% endif %}
