-- The incremental model holds exactly what the entries add up to.
with built as (
  select coalesce(sum(entries), 0) as entries, {{ exact_sum('quantity', 'quantity_text') }} as quantity
  from {{ ref('daily_transfer_volume') }}),
held as (
  select count(*) as entries, {{ exact_sum('quantity', 'quantity_text') }} as quantity from {{ ref('stg_entries') }})
select * from built cross join held
where built.entries <> held.entries or coalesce(built.quantity, '0') <> coalesce(held.quantity, '0')
