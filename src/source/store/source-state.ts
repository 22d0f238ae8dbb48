/**
 * Stores the source's ban in Postgres, because all workers must know it and it must
 * survive the loss of Redis.
 */
import { sql } from 'kysely';
import { formatInstant, parseInstant } from '../../time/time.ts';
import type { BanStore } from '../ports.ts';
import { builder } from '../../postgres/builder.ts';
import type { Database } from '../../postgres/database.ts';
import { execute, findRow } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';

/**
 * Opens the store. `get` ignores a ban that is over; `set` keeps the later of two ends,
 * whatever order they arrive in.
 */
export function openBanStore(db: Database): BanStore {
  return {
    get: async () => {
      const lasting = statement({ until: 'instant!' })`
        select ban_until as until from mirror.source_state
        where ban_until > clock_timestamp()`;
      const ban = await findRow(db, 'read the ban of the source', lasting);
      return ban && parseInstant(ban.until);
    },
    set: async (until) => {
      const later = sql<string>`greatest(ban_until, ${formatInstant(until)}::timestamptz)`;
      const record = builder
        .updateTable('mirror.source_state')
        .set({ ban_until: later });
      await execute(db, 'record the ban of the source', record);
    },
  };
}
