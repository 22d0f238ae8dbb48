{% if target.type == 'duckdb' %}
select party_id, first_seen_at from {{ lake('parties') }}
{% else %}
select party_id, first_seen_at, gone_since is null as is_listed from {{ source('mirror', 'party_list') }}
{% endif %}
