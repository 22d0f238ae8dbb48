select party_id, first_seen_at, source_time, gone_since is null as is_listed
from {{ source('mirror', 'party_list') }}
