/** Which long-lived processes work jobs now. A command works its own job only where there is none. */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

/** A process that has not been heard of for this long is taken for dead. */
export const WORKER_SILENT_MS = 10_000;
const FORGOTTEN_AFTER_MS = 3_600_000;

export interface WorkerEntry {
  readonly name: string;
  readonly queues: readonly string[];
  /** The source that it asks; it refuses the jobs of others. */
  readonly sourceUrl: string | undefined;
  /** When it begins nightly runs and audits: what the status tells of the next ones. */
  readonly schedules: Readonly<
    Record<'nightly' | 'audit', { readonly pattern: string; readonly tz: string }>
  >;
}

export class WorkerRegistry {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Says that this process lives; called every few seconds. */
  async beat(workerId: string, { name, queues, sourceUrl, schedules }: WorkerEntry): Promise<void> {
    await mapDatabaseError('renew this worker', async () => {
      await sql`insert into mirror.workers (worker_id, name, queues, source_url, schedules)
        values (${workerId}, ${name}, ${[...queues]}, ${sourceUrl ?? null}, ${JSON.stringify(schedules)}::jsonb)
        on conflict (worker_id) do update set heartbeat_at = clock_timestamp()`.execute(this.#db);
      await sql`delete from mirror.workers
        where heartbeat_at < clock_timestamp() - ${FORGOTTEN_AFTER_MS} * interval '1 millisecond'`.execute(
        this.#db,
      );
    });
  }

  async leave(workerId: string): Promise<void> {
    await mapDatabaseError('sign this worker off', async () => {
      await this.#db.deleteFrom('workers').where('worker_id', '=', workerId).execute();
    });
  }

  /** @param sourceUrl only workers that ask this source; undefined: any */
  async anyAlive(sourceUrl?: string): Promise<boolean> {
    return mapDatabaseError('look for workers', async () => {
      const row = await this.#db
        .selectFrom('workers')
        .select('worker_id')
        .where(
          sql<boolean>`heartbeat_at > clock_timestamp() - ${WORKER_SILENT_MS} * interval '1 millisecond'`,
        )
        .where(sql<boolean>`(${sourceUrl ?? null}::text is null or source_url = ${sourceUrl ?? null})`)
        .limit(1)
        .executeTakeFirst();
      return row !== undefined;
    });
  }
}
