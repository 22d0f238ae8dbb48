/** Finished runs, their costs, what each nightly run asked, and closed doubts are kept for a time; then they go. */
import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import { partitionOf } from './nightly-plans.ts';

const BATCH = 1_000;
const BATCHES_MAX = 100;

export interface Forgotten {
  readonly runs: number;
  readonly nightlyLists: number;
}

/** The newest run of each kind and subject stays: the status goes by it. So does what another table names. */
export async function forgetHistory(db: Database, retentionMs: number): Promise<Forgotten> {
  return mapDatabaseError('forget old runs', async () => {
    const nightlyLists = await dropLists(db, retentionMs);
    const references = await runReferences(db);
    let runs = 0;
    for (let batch = 0; batch < BATCHES_MAX; batch += 1) {
      const deleted = await deleteRuns(db, retentionMs, references);
      runs += deleted;
      if (deleted < BATCH) break;
    }
    for (const table of ['doubts', 'list_gaps'])
      await sql`delete from ${sql.id('mirror', table)} where closed_at < ${before(retentionMs)}`.execute(db);
    return { runs, nightlyLists };
  });
}

function before(retentionMs: number): RawBuilder<unknown> {
  return sql`clock_timestamp() - ${retentionMs} * interval '1 millisecond'`;
}

async function dropLists(db: Database, retentionMs: number): Promise<number> {
  const old = await sql<{ run_id: string }>`
    select run_id from mirror.runs where kind = 'nightly' and finished_at < ${before(retentionMs)}
       and to_regclass('mirror.nightly_units_' || replace(run_id::text, '-', '')) is not null
     order by finished_at limit ${BATCH}`.execute(db);
  for (const { run_id: runId } of old.rows)
    await sql`drop table if exists ${sql.id('mirror', partitionOf(runId))}`.execute(db);
  return old.rows.length;
}

/** Tables that refer to runs, as the schema says, whoever they belong to; those whose rows go with the run keep none. */
async function runReferences(db: Database): Promise<readonly { table: string; column: string }[]> {
  const found = await sql<{ table: string; column: string }>`
    select c.relname as table, a.attname as column
      from pg_constraint k join pg_class c on c.oid = k.conrelid
      join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
     where k.contype = 'f' and k.confrelid = 'mirror.runs'::regclass and c.relname <> 'source_costs'
       and k.confdeltype <> 'c'`.execute(db);
  return found.rows;
}

async function deleteRuns(
  db: Database,
  retentionMs: number,
  references: readonly { table: string; column: string }[],
): Promise<number> {
  const named = references.map(
    ({ table, column }) =>
      sql`and not exists (select from ${sql.id('mirror', table)} t where t.${sql.id(column)} = old.run_id)`,
  );
  const deleted = await sql<{ runs: bigint }>`
    with old as materialized (
      select run_id from mirror.runs r
       where state in ('done', 'cancelled') and finished_at < ${before(retentionMs)}
         and exists (select from mirror.runs later where later.kind = r.kind and later.subject = r.subject
                      and later.state = 'done' and later.queued_at > r.queued_at)
       order by finished_at limit ${BATCH}),
    free as materialized (select run_id from old where true ${sql.join(named, sql` `)}),
    costs as (delete from mirror.source_costs where run_id in (select run_id from free)),
    gone as (delete from mirror.runs where run_id in (select run_id from free) returning 1)
    select count(*) as runs from gone`.execute(db);
  return Number(deleted.rows[0]?.runs ?? 0n);
}
