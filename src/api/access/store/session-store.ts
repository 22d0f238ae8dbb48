/** Sessions that were logged out before their end, and the secret that no other mirror has. */
import type { Pool } from 'pg';
import { mapDatabaseError } from '../../../postgres/transaction.ts';
import type { SessionStore } from '../keys.ts';

export function openSessionStore(pool: Pool): SessionStore {
  return {
    secret: () =>
      mapDatabaseError("read the mirror's secret", async () => {
        const { rows } = await pool.query<{ secret: Buffer }>(
          `select sha256('sessions'::bytea || cursor_secret) as secret from mirror.identity`,
        );
        const [row] = rows;
        if (row === undefined) throw new Error('mirror.identity is empty');
        return row.secret;
      }),
    end: (sessionId, untilMs) =>
      mapDatabaseError('end a session', async () => {
        await pool.query('delete from mirror.ended_sessions where until < clock_timestamp()');
        await pool.query(
          `insert into mirror.ended_sessions (session_id, until)
           values ($1, to_timestamp($2::numeric / 1000)) on conflict do nothing`,
          [sessionId, String(untilMs)],
        );
      }),
    isEnded: (sessionId) =>
      mapDatabaseError('look up a session', async () => {
        const { rows } = await pool.query('select from mirror.ended_sessions where session_id = $1', [
          sessionId,
        ]);
        return rows.length > 0;
      }),
  };
}
