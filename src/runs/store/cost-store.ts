/** What runs cost the source, added up over every process that works for them. */
import { sql } from 'kysely';
import type { SourceCost } from '../../source/ports.ts';
import type { Database } from '../../postgres/database.ts';
import { readRow, readRows } from '../../postgres/transaction.ts';

export async function addCost(
  db: Database,
  runId: string,
  processId: string,
  { requests, retries, failures, bytes, waitedMs }: SourceCost,
): Promise<void> {
  await readRows(
    db,
    'record what a run asked',
    sql`insert into mirror.source_costs as cost
            (run_id, process_id, list_requests, export_requests, retries, failures, bytes, waited_ms)
          values (${runId}, ${processId}, ${requests.lists}, ${requests.exports}, ${retries}, ${failures}, ${bytes}, ${waitedMs})
          on conflict (run_id, process_id) do update set
            list_requests = cost.list_requests + excluded.list_requests,
            export_requests = cost.export_requests + excluded.export_requests,
            retries = cost.retries + excluded.retries,
            failures = cost.failures + excluded.failures,
            bytes = cost.bytes + excluded.bytes,
            waited_ms = cost.waited_ms + excluded.waited_ms`,
  );
}

/** Of the run and of those below it. */
export async function readCost(db: Database, runId: string): Promise<SourceCost> {
  const { cost } = await readRow(
    db,
    'read what a run asked',
    sql<{ cost: SourceCost }>`
        select json_build_object(
            'requests', json_build_object('lists', coalesce(sum(list_requests), 0), 'exports', coalesce(sum(export_requests), 0)),
            'retries', coalesce(sum(retries), 0), 'failures', coalesce(sum(failures), 0),
            'bytes', coalesce(sum(bytes), 0), 'waitedMs', coalesce(sum(waited_ms), 0)) as cost
          from mirror.source_costs join mirror.runs using (run_id)
         where run_id = ${runId} or parent_run_id = ${runId}`,
  );
  return cost;
}
