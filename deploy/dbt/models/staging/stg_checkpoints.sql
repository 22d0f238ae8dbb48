{% if target.type == 'duckdb' %}
select epoch, at_block, hash, block_hash, first_seen_at from {{ lake('checkpoints') }}
{% else %}
select epoch, at_block, hash, block_hash, first_seen_at, copies from {{ source('mirror', 'checkpoint_list') }}
{% endif %}
