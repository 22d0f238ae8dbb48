-- What each party holds, by asset, over those of its accounts whose balance is resolved.
select party_id, asset_id, count(*) as accounts,
  sum(case when is_resolved then 0 else 1 end) as unresolved_accounts,
  sum(balance) as balance, max(as_of) as as_of
from {{ source('mirror', 'latest_balances') }}
group by party_id, asset_id
