/** Finished runs, their costs, what each nightly run asked, and closed doubts are kept for a time; then they go. */
import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { readRows } from '../../postgres/transaction.ts';
import { namePartition } from './nightly/nightly-plan.ts';

const BATCH = 1_000;
const BATCHES_MAX = 100;

type Forgotten = Readonly<Record<'runs' | 'nightlyLists', number>>;

/** The newest run of each kind and subject stays: the status goes by it. So does a run with others below it. */
export async function forgetHistory(
  db: Database,
  retentionMs: number,
): Promise<Forgotten> {
  const before = sql`clock_timestamp() - ${retentionMs} * interval '1 millisecond'`;
  const change = <Row>(statement: RawBuilder<Row>) =>
    readRows(db, 'forget old runs', statement);
  const lists = await change(sql<{ run_id: string }>`
    select run_id from mirror.runs where kind = 'nightly' and finished_at < ${before}
       and to_regclass('mirror.nightly_units_' || replace(run_id::text, '-', '')) is not null
     order by finished_at limit ${BATCH}`);
  for (const { run_id: runId } of lists)
    await change(sql`drop table if exists ${sql.id('mirror', namePartition(runId))}`);
  let runs = 0;
  for (let batch = 0; batch < BATCHES_MAX; batch += 1) {
    const deleted = await change(sql`
      with old as materialized (
        select run_id from mirror.runs r
         where state in ('done', 'cancelled') and finished_at < ${before}
           and exists (select from mirror.runs later where later.kind = r.kind and later.subject = r.subject
                        and later.state = 'done' and later.queued_at > r.queued_at)
           and not exists (select from mirror.runs below where below.parent_run_id = r.run_id)
         order by finished_at limit ${BATCH}),
      costs as (delete from mirror.source_costs where run_id in (select run_id from old))
      delete from mirror.runs where run_id in (select run_id from old) returning 1`);
    runs += deleted.length;
    if (deleted.length < BATCH) break;
  }
  for (const table of ['doubts', 'list_gaps'])
    await change(sql`delete from ${sql.id('mirror', table)} where closed_at < ${before}`);
  return { runs, nightlyLists: lists.length };
}
