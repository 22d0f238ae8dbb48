select epoch, at_block, hash, block_hash, copies, first_seen_at from {{ source('mirror', 'checkpoint_list') }}
