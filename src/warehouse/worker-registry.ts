/** Which long-lived processes work jobs now. A command works its own job only where there is none. */
import { sql } from 'kysely';
import type { Database } from './database.ts';
import { databaseError } from './transaction.ts';

/** A process that has not been heard of for this long is taken for dead. */
export const WORKER_SILENT_MS = 10_000;
const FORGOTTEN_AFTER_MS = 3_600_000;

export class WorkerRegistry {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Says that this process lives; called every few seconds. */
  async beat(workerId: string, name: string, queues: readonly string[]): Promise<void> {
    try {
      await sql`insert into mirror.workers (worker_id, name, queues) values (${workerId}, ${name}, ${[...queues]})
        on conflict (worker_id) do update set heartbeat_at = clock_timestamp()`.execute(this.#db);
      await sql`delete from mirror.workers
        where heartbeat_at < clock_timestamp() - ${FORGOTTEN_AFTER_MS} * interval '1 millisecond'`.execute(
        this.#db,
      );
    } catch (error) {
      throw databaseError('renew this worker', error);
    }
  }

  async leave(workerId: string): Promise<void> {
    try {
      await this.#db.deleteFrom('workers').where('worker_id', '=', workerId).execute();
    } catch (error) {
      throw databaseError('sign this worker off', error);
    }
  }

  async anyAlive(): Promise<boolean> {
    try {
      const row = await this.#db
        .selectFrom('workers')
        .select('worker_id')
        .where(
          sql<boolean>`heartbeat_at > clock_timestamp() - ${WORKER_SILENT_MS} * interval '1 millisecond'`,
        )
        .limit(1)
        .executeTakeFirst();
      return row !== undefined;
    } catch (error) {
      throw databaseError('look for workers', error);
    }
  }
}
