/** Whether scheduled times were taken care of: by a run, or because the mirror is younger. */
import { sql } from 'kysely';
import type { Database } from '../../../postgres/database.ts';
import { readRow } from '../../../postgres/transaction.ts';

interface ScheduledTime {
  readonly isCaredFor: boolean;
  /** Nightly runs that failed since then, and when the last of them ended. */
  readonly failed: number;
  readonly lastFailedAt: string | null;
}

const IS_OPEN = sql`state in ('queued', 'running')`;
const isYounger = (scheduledAt: string) =>
  sql`exists (select from mirror.identity where created_at > ${scheduledAt}::timestamptz)`;

/** A run counts that is going, or ended later and did not fail: one that failed brought nothing, and is tried again. */
export function readScheduledTime(db: Database, scheduledAt: string): Promise<ScheduledTime> {
  return readRow(
    db,
    'look for the run of a scheduled time',
    sql<ScheduledTime>`
      select count(*) filter (where ${IS_OPEN} or verdict is distinct from 'failed') > 0
               or ${isYounger(scheduledAt)} as "isCaredFor",
             (count(*) filter (where verdict = 'failed'))::int as failed,
             max(finished_at) filter (where verdict = 'failed') as "lastFailedAt"
        from mirror.runs where kind = 'nightly' and (${IS_OPEN} or finished_at >= ${scheduledAt}::timestamptz)`,
  );
}

/** Whether a list was read as a whole since then, or the mirror is younger. */
export async function hasAuditSince(db: Database, list: string, scheduledAt: string): Promise<boolean> {
  const { isCaredFor } = await readRow(
    db,
    'look for the audit of a scheduled time',
    sql<Pick<ScheduledTime, 'isCaredFor'>>`
      select ${isYounger(scheduledAt)} or exists (
        select from mirror.runs where kind = 'sync' and subject = ${list} and params->>'full' = 'true'
           and (${IS_OPEN} or finished_at >= ${scheduledAt}::timestamptz)) as "isCaredFor"`,
  );
  return isCaredFor;
}
