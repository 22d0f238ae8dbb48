-- How far each checkpoint lies from the one before.
select epoch, at_block, at_block - lag(at_block) over (partition by epoch order by at_block) as blocks_since_previous
from (select distinct epoch, at_block from {{ ref('stg_checkpoints') }}) as heights
