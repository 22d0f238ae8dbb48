/** Finished runs, their costs, what each nightly run asked, and closed doubts are kept for a time; then they go. */
import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { readRow, readRows } from '../../postgres/transaction.ts';
import { namePartition } from './nightly/nightly-plans.ts';

const ACTION = 'forget old runs';
const BATCH = 1_000;
const BATCHES_MAX = 100;

interface Forgotten {
  readonly runs: number;
  readonly nightlyLists: number;
}

/** The newest run of each kind and subject stays: the status goes by it. So does a run with others below it. */
export async function forgetHistory(db: Database, retentionMs: number): Promise<Forgotten> {
  const nightlyLists = await dropLists(db, retentionMs);
  let runs = 0;
  for (let batch = 0; batch < BATCHES_MAX; batch += 1) {
    const deleted = await deleteRuns(db, retentionMs);
    runs += deleted;
    if (deleted < BATCH) break;
  }
  for (const table of ['doubts', 'list_gaps'])
    await readRows(
      db,
      ACTION,
      sql`delete from ${sql.id('mirror', table)} where closed_at < ${before(retentionMs)}`,
    );
  return { runs, nightlyLists };
}

function before(retentionMs: number): RawBuilder<unknown> {
  return sql`clock_timestamp() - ${retentionMs} * interval '1 millisecond'`;
}

async function dropLists(db: Database, retentionMs: number): Promise<number> {
  const old = await readRows(
    db,
    ACTION,
    sql<{ run_id: string }>`
      select run_id from mirror.runs where kind = 'nightly' and finished_at < ${before(retentionMs)}
         and to_regclass('mirror.nightly_units_' || replace(run_id::text, '-', '')) is not null
       order by finished_at limit ${BATCH}`,
  );
  for (const { run_id: runId } of old)
    await readRows(db, ACTION, sql`drop table if exists ${sql.id('mirror', namePartition(runId))}`);
  return old.length;
}

async function deleteRuns(db: Database, retentionMs: number): Promise<number> {
  const { runs } = await readRow(
    db,
    ACTION,
    sql<{ runs: number }>`
      with old as materialized (
        select run_id from mirror.runs r
         where state in ('done', 'cancelled') and finished_at < ${before(retentionMs)}
           and exists (select from mirror.runs later where later.kind = r.kind and later.subject = r.subject
                        and later.state = 'done' and later.queued_at > r.queued_at)
           and not exists (select from mirror.runs below where below.parent_run_id = r.run_id)
         order by finished_at limit ${BATCH}),
      costs as (delete from mirror.source_costs where run_id in (select run_id from old)),
      gone as (delete from mirror.runs where run_id in (select run_id from old) returning 1)
      select count(*)::int as runs from gone`,
  );
  return runs;
}
