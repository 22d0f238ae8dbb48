select run_id, kind, subject, verdict, started_at, finished_at, seconds
from {{ source('mirror', 'run_list') }} where state = 'done'
