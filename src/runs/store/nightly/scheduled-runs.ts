/** Whether scheduled times were taken care of: by a run, or because the mirror is younger. */
import { sql } from 'kysely';
import type { Database } from '../../../postgres/database.ts';
import { readRow } from '../../../postgres/transaction.ts';
import type { NewRun } from '../run.ts';

interface ScheduledTime {
  readonly isCaredFor: boolean;
  /** Runs that failed since then, and when the last of them ended. */
  readonly failed: number;
  readonly lastFailedAt: string | null;
}

/**
 * A run counts that is going, or ended later and did not fail: one that failed brought nothing.
 * @param wanted any nightly run, whatever its subject; of syncs, those that read the list as a whole
 */
export function readScheduledTime(
  db: Database,
  { kind, subject }: NewRun,
  dueMs: number,
): Promise<ScheduledTime> {
  const isOpen = sql`state in ('queued', 'running')`;
  const dueAt = sql`${new Date(dueMs).toISOString()}::timestamptz`;
  return readRow(
    db,
    'look for the run of a scheduled time',
    sql<ScheduledTime>`
      select count(*) filter (where ${isOpen} or verdict is distinct from 'failed') > 0
               or exists (select from mirror.identity where created_at > ${dueAt}) as "isCaredFor",
             (count(*) filter (where verdict = 'failed'))::int as failed,
             max(finished_at) filter (where verdict = 'failed') as "lastFailedAt"
        from mirror.runs where kind = ${kind} and (${isOpen} or finished_at >= ${dueAt})
         and (kind = 'nightly' or (subject = ${subject} and params->>'full' = 'true'))`,
  );
}
