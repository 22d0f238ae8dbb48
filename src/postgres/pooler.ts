/**
 * Detects a pooler that may use a different session for each transaction. With such a
 * pooler, the locks, settings and temporary tables of a session would silently be lost
 * or shared.
 */
import type { Pool } from 'pg';
import { PermanentError } from '../errors/errors.ts';
import { openSession, type Session } from './session.ts';
import { readRow } from './run-statement.ts';
import { statement } from './statement.ts';

const ACTION = 'look at the sessions of the database';
const SESSION = statement({ pid: 'int' })`select pg_backend_pid() as pid`;

/**
 * Requires real sessions, which it tests by opening two connections at the same time.
 * With real sessions, each connection has its own server process. Behind a transaction
 * pooler, the process that has just served the first connection also serves the second.
 * @throws PermanentError `DATABASE_POOLER`
 */
export async function requireSessions(pool: Pool): Promise<void> {
  await using stack = new AsyncDisposableStack();
  const open = async (): Promise<Session> => {
    const session = await openSession(pool, ACTION);
    stack.defer(() => session.release(false));
    return session;
  };
  const first = await open();
  const before = await readRow(first, ACTION, SESSION);
  const second = await open();
  const other = await readRow(second, ACTION, SESSION);
  const after = await readRow(first, ACTION, SESSION);
  if (before.pid === after.pid && before.pid !== other.pid) return;
  throw new PermanentError(
    'Cannot use this database: a pooler in front of it gives each ' +
      'transaction a different session; set its pool_mode to session, or ' +
      'point DATABASE_URL at the server itself ' +
      'or at a port of the pooler that keeps sessions',
    { code: 'DATABASE_POOLER' },
  );
}
