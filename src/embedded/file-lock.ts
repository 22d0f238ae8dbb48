/**
 * A lock that the kernel takes back from a process however it ends, kill -9 included. Node has no
 * flock; SQLite's own locks on an empty database file are such locks, and need no stale-file rules.
 */
import { DatabaseSync } from 'node:sqlite';
import { PermanentError, RetryableError } from '../core/errors.ts';
import { waitFor } from '../core/waiting.ts';

const POLL_MS = 20;
const SQLITE_BUSY = 5;

/**
 * Any number of shared locks, or one exclusive lock, on the file (made where missing), until it is disposed of.
 * @returns undefined while somebody else holds it in a way that excludes this
 * @throws PermanentError `EMBEDDED_LOCK` where the file cannot be locked at all
 */
export function takeLock(path: string, mode: 'shared' | 'exclusive'): Disposable | undefined {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { timeout: 0 });
    database.exec(mode === 'exclusive' ? 'BEGIN EXCLUSIVE' : 'BEGIN; SELECT count(*) FROM sqlite_schema');
    return database;
  } catch (error) {
    database?.close();
    if (error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY) return undefined;
    throw new PermanentError(
      `Cannot lock ${path}: the file cannot be opened and locked by this user; run as the user who made it, on a local disk`,
      { code: 'EMBEDDED_LOCK', meta: { path }, cause: error },
    );
  }
}

/**
 * Waits for the exclusive lock.
 * @throws RetryableError `EMBEDDED_BUSY` after `waitMs`; an AbortError or the signal's reason when aborted
 */
export function waitForLock(path: string, waitMs: number, signal: AbortSignal): Promise<Disposable> {
  const limits = { waitMs, stepMinMs: POLL_MS, stepMaxMs: POLL_MS, signal };
  const busy = `Cannot lock ${path}: another command has held it for ${waitMs / 1000} s; try again when it is done`;
  return waitFor(
    async () => takeLock(path, 'exclusive'),
    limits,
    () => new RetryableError(busy, { code: 'EMBEDDED_BUSY', meta: { path } }),
  );
}
