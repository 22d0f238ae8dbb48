-- A version for each month's rows: another one, and what was built from the month is built anew. A table, so that what
-- an incremental model deletes and what it builds are told by the same versions.
{{ config(materialized='table') }}
{% if target.type == 'duckdb' %}
-- The rows of a month are those of its segments; which of them count follows from who is covered in it.
with held as (
  select month, count(*) as entries, cast(sum(cast(hash(segment_id) as hugeint)) as varchar) as segments
  from {{ lake('ledger_entries') }} group by month),
months as (select *, cast(month || '-01' as timestamp) at time zone 'UTC' as starts from held),
covered as (
  select m.month, cast(sum(cast(hash(c.party_id, c.asset_id, greatest(c.from_time, m.starts),
      least(c.to_time, m.starts + interval 1 month)) as hugeint)) as varchar) as coverage
  from months as m join {{ lake('coverage') }} as c on c.from_time < m.starts + interval 1 month and c.to_time > m.starts
  group by m.month)
select cast(month || '-01' as date) as month, entries || ' ' || segments || ' ' || coalesce(coverage, '') as version
from months left join covered using (month)
{% else %}
select month, version from {{ source('mirror', 'changed_months') }}
{% endif %}
