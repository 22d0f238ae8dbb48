/** Sessions that were logged out before their end, and the secret that no other mirror has. */
import { sql } from 'kysely';
import type { Database } from '../../../postgres/database.ts';
import { readRow, readRows } from '../../../postgres/transaction.ts';
import type { SessionStore } from '../keys.ts';

export function openSessionStore(db: Database): SessionStore {
  return {
    secret: async () => {
      const statement = sql<{ secret: Buffer }>`
        select sha256('sessions'::bytea || cursor_secret) as secret from mirror.identity`;
      return (await readRow(db, "read the mirror's secret", statement)).secret;
    },
    end: async (sessionId, untilMs) => {
      await readRows(
        db,
        'end a session',
        sql`with dropped as (delete from mirror.ended_sessions where until < clock_timestamp())
          insert into mirror.ended_sessions (session_id, until)
          values (${sessionId}, to_timestamp(${String(untilMs)}::numeric / 1000)) on conflict do nothing`,
      );
    },
    isEnded: async (sessionId) => {
      const statement = sql`select from mirror.ended_sessions where session_id = ${sessionId}`;
      return (await readRows(db, 'look up a session', statement)).length > 0;
    },
  };
}
