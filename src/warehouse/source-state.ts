/** What all workers must know of the source and may not lose with Redis: until when it has banned us. */
import { sql } from 'kysely';
import { formatInstant, parseInstant, type Micros } from '../core/time.ts';
import type { BanStore } from '../source/ports.ts';
import type { Database } from './database.ts';
import { databaseError } from './transaction.ts';

export class PostgresBanStore implements BanStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** @returns undefined where there was no ban, or it is over */
  async get(): Promise<Micros | undefined> {
    try {
      const row = await this.#db
        .selectFrom('source_state')
        .select('ban_until')
        .where('ban_until', '>', sql<string>`clock_timestamp()`)
        .executeTakeFirst();
      return row?.ban_until == null ? undefined : parseInstant(row.ban_until);
    } catch (error) {
      throw databaseError('read the ban of the source', error);
    }
  }

  /** Keeps the later of two ends: bans reported by two workers may arrive in either order. */
  async set(until: Micros): Promise<void> {
    try {
      await this.#db
        .updateTable('source_state')
        .set({ ban_until: sql<string>`greatest(ban_until, ${formatInstant(until)}::timestamptz)` })
        .execute();
    } catch (error) {
      throw databaseError('record the ban of the source', error);
    }
  }
}
