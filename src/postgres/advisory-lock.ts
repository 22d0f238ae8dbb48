/** Locks between processes that end with their connection or transaction, and that can be waited for with a signal. */
import type { PoolClient } from 'pg';
import { RetryableError } from '../errors/errors.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import { mapDatabaseError } from './database-error.ts';

const STEP_MAX_MS = 200;
/** How long another process's load of a segment, or build of the lake, may take. */
const WAIT_MS = 900_000;

/**
 * Resolves when the lock is held. Polled rather than waited for in the database,
 * where an abort would not be noticed.
 * @throws RetryableError `LOCK_BUSY`
 */
export async function takeLock(
  client: PoolClient,
  name: string,
  scope: 'session' | 'transaction',
  signal: AbortSignal,
): Promise<void> {
  const attempt =
    scope === 'session' ? 'pg_try_advisory_lock' : 'pg_try_advisory_xact_lock';
  await waitFor(
    async () => {
      const { rows } = await mapDatabaseError(`take the lock ${name}`, () =>
        client.query<{ taken: boolean }>(
          `select ${attempt}(mirror.lock_key($1)) as taken`,
          [name],
        ),
      );
      return rows[0]?.taken === true ? true : undefined;
    },
    { waitMs: WAIT_MS, stepMaxMs: STEP_MAX_MS, signal },
    () =>
      new RetryableError(
        `Cannot take the lock ${name}: another process has held it for ${WAIT_MS / 60_000} minutes; see what it does`,
        { code: 'LOCK_BUSY', meta: { lock: name } },
      ),
  );
}
