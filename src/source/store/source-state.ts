/** The source's ban, which all workers must know and must not lose with Redis. */
import { sql } from 'kysely';
import { formatInstant, parseInstant } from '../../core/time.ts';
import type { BanStore } from '../ports.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

/** `get` knows no ban that is over; `set` keeps the later of two ends, in whichever order they come. */
export function openBanStore(db: Database): BanStore {
  return {
    get: () =>
      mapDatabaseError('read the ban of the source', async () => {
        const row = await db
          .selectFrom('source_state')
          .select('ban_until')
          .where('ban_until', '>', sql<string>`clock_timestamp()`)
          .executeTakeFirst();
        return typeof row?.ban_until === 'string' ? parseInstant(row.ban_until) : undefined;
      }),
    set: (until) =>
      mapDatabaseError('record the ban of the source', async () => {
        const ban_until = sql<string>`greatest(ban_until, ${formatInstant(until)}::timestamptz)`;
        await db.updateTable('source_state').set({ ban_until }).execute();
      }),
  };
}
