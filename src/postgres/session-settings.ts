/**
 * The settings of the sessions that read and write the mirror's tables: those that every
 * session of the product has, and those that our statements and locks rely on.
 */
import {
  PLAIN_SETTINGS,
  type SessionSettings,
} from '../network/postgres/plain-settings.ts';
import { readRows, type StatementRunner } from './run-statement.ts';
import { statement } from './statement.ts';

/**
 * How long a transaction may be idle. It is normally idle only while this process
 * computes. If this process hangs or its machine fails, the server ends its session, so
 * that other processes can take the locks. The value is less than LOCK_TIMEOUT_MS, so
 * that a waiting process gets the lock before it gives up.
 */
const IDLE_IN_TRANSACTION_MS = 10_000;
/**
 * How long a statement may wait for a lock. None of our transactions holds a lock this
 * long. A statement that waits longer is cancelled and retried.
 */
const LOCK_TIMEOUT_MS = 20_000;

/** The settings of a session that reads and writes the mirror. */
export const SESSION_SETTINGS: SessionSettings = {
  ...PLAIN_SETTINGS,
  // Statements qualify all names, so this decides only where an extension is installed:
  // in the first of these schemas that exists.
  search_path: 'public, mirror',
  jit: 'off',
  lock_timeout: `${LOCK_TIMEOUT_MS / 1000}s`,
  idle_in_transaction_session_timeout: `${IDLE_IN_TRANSACTION_MS / 1000}s`,
};

/** Returns a line for each setting that does not have the value that was set. */
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
