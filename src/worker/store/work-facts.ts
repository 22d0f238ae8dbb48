/** Who works, and whether nightly runs are left to a schedule at all: for the status. */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { readRow } from '../../postgres/transaction.ts';
import { WORKER_SILENT_MS } from './worker-registry.ts';

interface WorkerFacts {
  /** Long-lived processes that were heard of just now. */
  readonly workers: number;
  /** A nightly run was begun by the schedule before: somebody counts on it. */
  readonly isScheduled: boolean;
  /** When the youngest of them begins nightly runs; null where none is there. */
  readonly schedule: { readonly pattern: string; readonly tz: string } | null;
}

export function readWorkerFacts(db: Database): Promise<WorkerFacts> {
  return readRow(
    db,
    'look for workers',
    sql<WorkerFacts>`
      with alive as (
        select * from mirror.workers
         where heartbeat_at > clock_timestamp() - ${WORKER_SILENT_MS} * interval '1 millisecond')
      select (select count(*) from alive)::int as workers,
             exists (select from mirror.runs where kind = 'nightly' and slot is not null) as "isScheduled",
             (select schedules->'nightly' from alive order by started_at desc limit 1) as schedule`,
  );
}
