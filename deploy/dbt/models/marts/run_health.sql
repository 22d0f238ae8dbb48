select kind, cast(finished_at as date) as day, verdict, count(*) as runs, max(seconds) as longest_seconds
from {{ ref('stg_runs') }}
group by kind, cast(finished_at as date), verdict
