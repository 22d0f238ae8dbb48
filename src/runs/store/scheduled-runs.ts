/** Whether scheduled times were taken care of. */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

export class ScheduledRuns {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Whether a scheduled time is taken care of: by a run that ended later and did not fail, by one that is going, or
   * because the mirror is younger. A run that failed brought nothing: it is tried again.
   */
  async hasRunSince(scheduledAt: string): Promise<boolean> {
    return mapDatabaseError('look for the run of a scheduled time', async () => {
      const found = await sql<{ has: boolean }>`
        select exists (select from mirror.runs where kind = 'nightly'
                       and (state in ('queued', 'running')
                            or (finished_at >= ${scheduledAt}::timestamptz and verdict is distinct from 'failed')))
            or exists (select from mirror.identity where created_at > ${scheduledAt}::timestamptz) as has`.execute(
        this.#db,
      );
      return found.rows[0]?.has === true;
    });
  }

  /** Nightly runs that failed since a scheduled time, and when the last of them ended. */
  async failedSince(
    scheduledAt: string,
  ): Promise<{ readonly runs: number; readonly lastAt: string | undefined }> {
    return mapDatabaseError('count failed nightly runs', async () => {
      const found = await sql<{ runs: bigint; last_at: string | null }>`
        select count(*) as runs, max(finished_at) as last_at from mirror.runs
         where kind = 'nightly' and verdict = 'failed' and finished_at >= ${scheduledAt}::timestamptz`.execute(
        this.#db,
      );
      const row = found.rows[0];
      return { runs: Number(row?.runs ?? 0n), lastAt: row?.last_at ?? undefined };
    });
  }

  /** Whether a list was read as a whole since then, or the mirror is younger. */
  async hasAuditSince(list: string, scheduledAt: string): Promise<boolean> {
    return mapDatabaseError('look for an audit', async () => {
      const found = await sql<{ has: boolean }>`
        select exists (select from mirror.runs where kind = 'sync' and subject = ${list} and params->>'full' = 'true'
                       and (state in ('queued', 'running') or finished_at >= ${scheduledAt}::timestamptz))
            or exists (select from mirror.identity where created_at > ${scheduledAt}::timestamptz) as has`.execute(
        this.#db,
      );
      return found.rows[0]?.has === true;
    });
  }
}
