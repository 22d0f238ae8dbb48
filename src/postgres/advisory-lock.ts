/** Locks between processes, released with their session or transaction. */
import { RetryableError } from '../errors/errors.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import { readRow } from './run-statement.ts';
import type { Session } from './session.ts';
import { statement } from './statement.ts';

const STEP_MAX_MS = 200;
/**
 * How long to wait for a lock. Another process may take this long to load a segment or
 * build the lake.
 */
const WAIT_MS = 900_000;

/**
 * Takes a lock on the session, waiting while another process holds it. It polls, because
 * a wait in the database would not notice an abort.
 * @param scope 'transaction': the lock ends with the transaction; 'session': with the
 *   connection
 * @throws RetryableError `LOCK_BUSY` if the lock is not free within 15 minutes
 */
export async function takeLock(
  session: Session,
  name: string,
  scope: 'session' | 'transaction',
  signal: AbortSignal,
): Promise<void> {
  const attempt =
    scope === 'session'
      ? statement({ taken: 'boolean' })`
          select pg_try_advisory_lock(mirror.lock_key(${name})) as taken`
      : statement({ taken: 'boolean' })`
          select pg_try_advisory_xact_lock(mirror.lock_key(${name})) as taken`;
  await waitFor(
    async () => {
      const { taken } = await readRow(
        session,
        `take the lock ${name}`,
        attempt,
      );
      return taken ? true : undefined;
    },
    { waitMs: WAIT_MS, stepMaxMs: STEP_MAX_MS, signal },
    () =>
      new RetryableError(
        `Cannot take the lock ${name}: another process has held it for ` +
          `${WAIT_MS / 60_000} minutes; check what it is doing`,
        { code: 'LOCK_BUSY', meta: { lock: name } },
      ),
  );
}
