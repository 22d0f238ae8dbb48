/**
 * What every session of ours goes by, whatever the server, its database or the role have set. It is
 * set after connecting: a pooler refuses startup parameters, or drops them in silence.
 */
import {
  PLAIN_SETTINGS,
  type SessionSettings,
} from '../network/postgres/session-settings.ts';
import { readRows, type StatementRunner } from './run-statement.ts';
import { statement } from './statement.ts';

/**
 * A transaction is idle while this process computes. If the process stands still, or its
 * machine is gone, other processes need its locks. This is shorter than LOCK_TIMEOUT_MS,
 * so that a waiter gets the lock.
 */
const IDLE_IN_TRANSACTION_MS = 10_000;
/**
 * None of our transactions holds a lock this long. A statement that waits longer ends,
 * and is retried.
 */
const LOCK_TIMEOUT_MS = 20_000;

/** Those of a session that reads and writes the mirror. */
export const SESSION_SETTINGS: SessionSettings = {
  ...PLAIN_SETTINGS,
  // Every statement names its schema. An extension goes into the first of these that exists.
  search_path: 'public, mirror',
  jit: 'off',
  lock_timeout: `${LOCK_TIMEOUT_MS / 1000}s`,
  idle_in_transaction_session_timeout: `${IDLE_IN_TRANSACTION_MS / 1000}s`,
};

/** Returns what a session goes by although something else was set, one line each. */
export async function findLostSettings(
  db: StatementRunner,
): Promise<readonly string[]> {
  const inForce = await readRows(
    db,
    "read the session's settings",
    statement({ name: 'text', value: 'text', wanted: 'text' })`
      select name, current_setting(name, true) as value, wanted
      from jsonb_each_text(${JSON.stringify(SESSION_SETTINGS)}::jsonb) as asked(name, wanted)
      where current_setting(name, true) is distinct from wanted
        and current_setting(name, true) is not null
      order by name`,
  );
  return inForce.map(
    ({ name, value, wanted }) => `${name} is ${value} instead of ${wanted}`,
  );
}
