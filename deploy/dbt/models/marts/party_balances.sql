-- What each party holds, by asset, over those of its accounts whose balance is resolved.
with balances as (
  select *, {{ fitting('balance_text') }} as balance from {{ ref('stg_balances') }}),
held as (
  select party_id, asset_id, count(*) as accounts, sum(case when is_resolved then 0 else 1 end) as unresolved_accounts,
    {{ exact_sum('balance', 'balance_text') }} as balance_text, max(as_of) as as_of
  from balances group by party_id, asset_id)
select party_id, asset_id, accounts, unresolved_accounts, {{ fitting('balance_text') }} as balance, balance_text, as_of
from held
