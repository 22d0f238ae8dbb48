-- The incremental model holds exactly what the entries add up to.
select coalesce(a.entries, 0) as built, coalesce(b.entries, 0) as held
from (select sum(entries) as entries, sum(quantity) as quantity from {{ ref('daily_transfer_volume') }}) as a
cross join (select count(*) as entries, sum(quantity) as quantity from {{ ref('stg_entries') }}) as b
where coalesce(a.entries, 0) <> coalesce(b.entries, 0) or coalesce(a.quantity, 0) <> coalesce(b.quantity, 0)
