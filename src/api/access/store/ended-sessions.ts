/** Sessions that were logged out before their end, and the secret that no other mirror has. */
import { onlyRow, type Rows } from '../../../postgres/rows.ts';

const END = `
  with dropped as (delete from mirror.ended_sessions where until < clock_timestamp())
  insert into mirror.ended_sessions (session_id, until)
  values ($1, to_timestamp($2::numeric / 1000)) on conflict do nothing`;

/** 32 bytes that no client knows, the same for every process of this mirror and for no other. */
export async function readSessionSecret(rows: Rows): Promise<Buffer> {
  const statement = `select sha256('sessions'::bytea || cursor_secret) as secret from mirror.identity`;
  return (await onlyRow(rows<{ secret: Buffer }>("read the mirror's secret", statement))).secret;
}

export async function endSession(rows: Rows, sessionId: string, untilMs: number): Promise<void> {
  await rows('end a session', END, [sessionId, String(untilMs)]);
}

export async function isSessionEnded(rows: Rows, sessionId: string): Promise<boolean> {
  const statement = 'select from mirror.ended_sessions where session_id = $1';
  return (await rows('look up a session', statement, [sessionId])).length > 0;
}
