/**
 * Deletes finished runs, their costs, the ledgers that each nightly run requested, and
 * closed doubts, once their retention has passed.
 */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { builder } from '../../postgres/builder.ts';
import { execute, readRows } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import { namePartition } from './nightly/nightly-plan.ts';

const ACTION = 'forget old runs';
const BATCH = 1_000;
const BATCHES_MAX = 100;

type Forgotten = Readonly<Record<'runs' | 'nightlyLists', number>>;

/**
 * Deletes old history. The newest run of each kind and subject is kept, because the
 * status relies on it, and so is any run that still has child runs.
 */
export async function forgetHistory(
  db: Database,
  retentionMs: number,
): Promise<Forgotten> {
  const before = sql<string>`clock_timestamp() - ${retentionMs} * interval '1 millisecond'`;
  const old = statement({ runId: 'uuid' })`
    select run_id as "runId" from mirror.runs where kind = 'nightly' and finished_at < ${before}
       and to_regclass('mirror.nightly_units_' || replace(run_id::text, '-', '')) is not null
     order by finished_at limit ${BATCH}`;
  const lists = await readRows(db, ACTION, old);
  for (const { runId } of lists) {
    const drop = statement()`drop table if exists ${sql.id('mirror', namePartition(runId))}`;
    await execute(db, ACTION, drop);
  }
  let runs = 0;
  for (let batch = 0; batch < BATCHES_MAX; batch += 1) {
    const deletion = statement()`
      with old as materialized (
        select run_id from mirror.runs r
         where state in ('done', 'cancelled') and finished_at < ${before}
           and exists (select from mirror.runs later where later.kind = r.kind and later.subject = r.subject
                        and later.state = 'done' and later.queued_at > r.queued_at)
           and not exists (select from mirror.runs below where below.parent_run_id = r.run_id)
         order by finished_at limit ${BATCH}),
      costs as (delete from mirror.source_costs where run_id in (select run_id from old))
      delete from mirror.runs where run_id in (select run_id from old)`;
    const deleted = Number(await execute(db, ACTION, deletion));
    runs += deleted;
    if (deleted < BATCH) break;
  }
  for (const table of ['mirror.doubts', 'mirror.list_gaps'] as const) {
    const closed = builder.deleteFrom(table).where('closed_at', '<', before);
    await execute(db, ACTION, closed);
  }
  return { runs, nightlyLists: lists.length };
}
