/**
 * Two kinds of file lock that the kernel takes back however a process ends, `kill -9`
 * included. Both belong to the file itself, so that they hold between containers that
 * share a volume and see nothing of each other's processes.
 *
 * A record lock belongs to this process. A descriptor lock belongs to an open file, and a
 * child that inherits the file keeps it: so a server can hold a lock without knowing of
 * it.
 */
import { spawnSync } from 'node:child_process';
import * as fs from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { PermanentError } from '../errors/errors.ts';

const SQLITE_BUSY = 5;
const FLOCK_TIMEOUT_MS = 10_000;
/** `flock -n` exits with it when another open file holds the lock. */
const FLOCK_CONFLICT = 1;

/**
 * Takes any number of shared locks, or one exclusive lock, on a file, which is made if it
 * is missing. Disposing releases it.
 *
 * Node has no lock of its own. SQLite's locks on an empty database file are record locks,
 * and need no rules for stale files.
 * @returns undefined while another process holds the lock in a way that excludes this one
 * @throws PermanentError `EMBEDDED_LOCK` if the file cannot be locked at all
 */
export function takeRecordLock(
  path: string,
  mode: 'shared' | 'exclusive',
): Disposable | undefined {
  const begin =
    mode === 'exclusive'
      ? 'BEGIN EXCLUSIVE'
      : 'BEGIN; SELECT count(*) FROM sqlite_schema';
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { timeout: 0 });
    database.exec(begin);
    return database;
  } catch (error) {
    database?.close();
    if (isSqliteBusy(error)) return undefined;
    throw new PermanentError(
      `Cannot lock ${path}: the file cannot be opened and locked by this user; ` +
        'run as the user who made it, on a local disk',
      { code: 'EMBEDDED_LOCK', meta: { path }, cause: error },
    );
  }
}

function isSqliteBusy(error: unknown): boolean {
  return (
    error instanceof Error &&
    'errcode' in error &&
    error.errcode === SQLITE_BUSY
  );
}

/**
 * An open file with a descriptor lock on it. A child that inherits `fd` shares the lock.
 */
export interface DescriptorLock extends Disposable {
  readonly fd: number;
  /** false if this system has no `flock`, or the file system refuses such locks. */
  readonly isLocked: boolean;
}

/**
 * Opens the file and locks it exclusively. The lock lasts until this process and every
 * child that inherited the descriptor have closed it.
 *
 * The program `flock` (util-linux, BusyBox) locks a descriptor that it inherits and ends;
 * the lock stays with the open file, which is ours too.
 * @returns undefined while another open file holds the lock
 */
export function takeDescriptorLock(path: string): DescriptorLock | undefined {
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = fs.constants;
  const fd = fs.openSync(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600);
  const ended = spawnSync('flock', ['-n', '3'], {
    env: { PATH: '/usr/bin:/bin', LC_ALL: 'C' },
    encoding: 'utf8',
    stdio: ['ignore', 'ignore', 'pipe', fd],
    timeout: FLOCK_TIMEOUT_MS,
  });
  // BusyBox exits with 1 for every failure, and reports all others on stderr.
  if (ended.status === FLOCK_CONFLICT && ended.stderr === '') {
    fs.closeSync(fd);
    return undefined;
  }
  return {
    fd,
    isLocked: ended.status === 0,
    [Symbol.dispose]: () => fs.closeSync(fd),
  };
}
