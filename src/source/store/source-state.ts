/** The source's ban, which all workers must know and must not lose with Redis. */
import { sql } from 'kysely';
import { formatInstant, parseInstant } from '../../time/time.ts';
import type { BanStore } from '../ports.ts';
import type { Database } from '../../postgres/database.ts';
import { readRows } from '../../postgres/transaction.ts';

/** `get` knows no ban that is over; `set` keeps the later of two ends, in whichever order they come. */
export function openBanStore(db: Database): BanStore {
  return {
    get: async () => {
      const lasting = sql<{ until: string }>`
        select ban_until as until from mirror.source_state where ban_until > clock_timestamp()`;
      const [ban] = await readRows(db, 'read the ban of the source', lasting);
      return ban && parseInstant(ban.until);
    },
    set: async (until) => {
      const later = sql`greatest(ban_until, ${formatInstant(until)}::timestamptz)`;
      const record = sql`update mirror.source_state set ban_until = ${later}`;
      await readRows(db, 'record the ban of the source', record);
    },
  };
}
