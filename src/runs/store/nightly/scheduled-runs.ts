/** Whether scheduled times were taken care of. */
import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../../postgres/database.ts';
import { readRow } from '../../../postgres/transaction.ts';

export class ScheduledRuns {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Whether a scheduled time is taken care of: by a run that ended later and did not fail, by one that is going, or
   * because the mirror is younger. A run that failed brought nothing: it is tried again.
   */
  hasRunSince(scheduledAt: string): Promise<boolean> {
    const isRun = sql`kind = 'nightly' and (state in ('queued', 'running')
      or (finished_at >= ${scheduledAt}::timestamptz and verdict is distinct from 'failed'))`;
    return this.#isCaredFor(scheduledAt, isRun);
  }

  /** Nightly runs that failed since a scheduled time, and when the last of them ended. */
  failedSince(scheduledAt: string): Promise<{ readonly runs: number; readonly lastAt: string | null }> {
    return readRow(
      this.#db,
      'count failed nightly runs',
      sql<{ runs: number; lastAt: string | null }>`
        select count(*)::int as runs, max(finished_at) as "lastAt" from mirror.runs
         where kind = 'nightly' and verdict = 'failed' and finished_at >= ${scheduledAt}::timestamptz`,
    );
  }

  /** Whether a list was read as a whole since then, or the mirror is younger. */
  hasAuditSince(list: string, scheduledAt: string): Promise<boolean> {
    const isAudit = sql`kind = 'sync' and subject = ${list} and params->>'full' = 'true'
      and (state in ('queued', 'running') or finished_at >= ${scheduledAt}::timestamptz)`;
    return this.#isCaredFor(scheduledAt, isAudit);
  }

  async #isCaredFor(scheduledAt: string, isSuch: RawBuilder<unknown>): Promise<boolean> {
    const { isCaredFor } = await readRow(
      this.#db,
      'look for the run of a scheduled time',
      sql<{ isCaredFor: boolean }>`
        select exists (select from mirror.runs where ${isSuch})
            or exists (select from mirror.identity where created_at > ${scheduledAt}::timestamptz) as "isCaredFor"`,
    );
    return isCaredFor;
  }
}
