/**
 * Statements for sessions that were ended early by a logout, and for the secret that
 * signs sessions.
 */
import { onlyRow, type Rows } from '../../../postgres/api-rows.ts';

export const END_SESSION = `
  with dropped as (delete from mirror.ended_sessions where until < clock_timestamp())
  insert into mirror.ended_sessions (session_id, until)
  values ($1, to_timestamp($2::numeric / 1000)) on conflict do nothing`;

export const ENDED_SESSION =
  'select from mirror.ended_sessions where session_id = $1';

/**
 * Reads the secret that signs sessions: 32 bytes, shared by all processes of this mirror
 * and unique to it.
 */
export async function readSessionSecret(rows: Rows): Promise<Buffer> {
  const statement = `select sha256('sessions'::bytea || cursor_secret) as secret from mirror.identity`;
  return (
    await onlyRow(
      rows<{ secret: Buffer }>("read the mirror's secret", statement),
    )
  ).secret;
}
