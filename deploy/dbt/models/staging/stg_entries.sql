-- Each entry once. No column is unique: what is equal happened as often as it appears.
select * from {{ source('mirror', 'bi_entries') }}
