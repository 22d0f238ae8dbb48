/**
 * Monthly partitions of mirror.ledger_entries, made when the first row of a month arrives. A partition
 * is attached, not created in place: that lock lets loads and readers of other months go on.
 */
import type { Pool } from 'pg';
import { mapDatabaseError } from './transaction.ts';

const MONTH = /^\d{4}-(?:0[1-9]|1[0-2])$/;
const LOCK_TIMEOUT_MS = 30_000;

/**
 * Makes the partition of each month where it is missing; safe to be called by many at once.
 * @param months as `2023-05`
 */
export async function ensurePartitions(pool: Pool, months: readonly string[]): Promise<void> {
  await mapDatabaseError('make a partition of the ledger entries', async () => {
    for (const month of months) await pool.query(partitionStatement(month));
  });
}

function partitionStatement(month: string): string {
  if (!MONTH.test(month)) throw new RangeError(`not a month: ${month}`);
  const name = `ledger_entries_${month.replace('-', '_')}`;
  const first = `timestamp '${month}-01'`;
  // One statement block is one transaction. The advisory lock makes "is it attached?" reliable.
  return `do $$ begin
    perform set_config('lock_timeout', '${LOCK_TIMEOUT_MS}', true);
    perform pg_advisory_xact_lock(mirror.lock_key('partitions'));
    if not exists (select from pg_inherits where inhrelid = to_regclass('mirror.${name}')) then
      create table if not exists mirror.${name} (like mirror.ledger_entries);
      alter table mirror.ledger_entries attach partition mirror.${name}
        for values from (${first} at time zone 'UTC') to ((${first} + interval '1 month') at time zone 'UTC');
    end if;
  end $$`;
}
