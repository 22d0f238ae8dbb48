-- What moved each UTC day, by asset and type. Months whose rows changed are built anew, and only those.
{{ config(materialized='incremental', incremental_strategy='append', pre_hook='{{ delete_changed_months() }}') }}
with months as ({{ months_to_build() }}),
volume as (
  select months.month, months.version as month_version, day, asset_id, transfer_type,
    count(*) as entries, {{ exact_sum('quantity', 'quantity_text') }} as quantity_text
  from {{ ref('stg_entries') }} as entries join months on months.month = entries.month
  group by months.month, months.version, day, asset_id, transfer_type)
select month, month_version, day, asset_id, transfer_type, entries, {{ fitting('quantity_text') }} as quantity, quantity_text
from volume
