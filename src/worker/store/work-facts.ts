/** Who works, and whether nights are left to a schedule at all: for the status. */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';
import { WORKER_SILENT_MS } from './worker-registry.ts';

export interface WorkerFacts {
  /** Long-lived processes that were heard of just now. */
  readonly workers: number;
  /** A night was begun by the schedule before: somebody counts on it. */
  readonly isScheduled: boolean;
  /** When the youngest of them begins nightly runs; undefined where none is there. */
  readonly schedule: { readonly pattern: string; readonly tz: string } | undefined;
}

export async function readWorkerFacts(db: Database): Promise<WorkerFacts> {
  return mapDatabaseError('look for workers', async () => {
    const found = await sql<{
      workers: bigint;
      scheduled: boolean;
      schedule: { pattern: string; tz: string } | null;
    }>`
      select (select count(*) from mirror.workers
               where heartbeat_at > clock_timestamp() - ${WORKER_SILENT_MS} * interval '1 millisecond') as workers,
             exists (select from mirror.runs where kind = 'nightly' and slot is not null) as scheduled,
             (select schedules->'nightly' from mirror.workers
               where heartbeat_at > clock_timestamp() - ${WORKER_SILENT_MS} * interval '1 millisecond'
               order by started_at desc limit 1) as schedule`.execute(db);
    const [row] = found.rows;
    return {
      workers: Number(row?.workers ?? 0n),
      isScheduled: row?.scheduled === true,
      schedule: row?.schedule ?? undefined,
    };
  });
}
