/**
 * Two kinds of file lock that the kernel releases no matter how a process ends, even on
 * `kill -9`. Both belong to the file itself, so they also work between containers that
 * share a volume but cannot see each other's processes.
 *
 * A record lock belongs to this process. A descriptor lock belongs to an open file, and a
 * child that inherits the file keeps the lock, so a server can hold one without knowing
 * about it.
 */
import { spawnSync } from 'node:child_process';
import * as fs from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { PermanentError } from '../errors/errors.ts';

const SQLITE_BUSY = 5;
const FLOCK_TIMEOUT_MS = 10_000;
/** The exit code of `flock -n` if the lock is held through another open file. */
const FLOCK_CONFLICT = 1;

/**
 * Takes a lock on a file, creating the file if it is missing. A lock is either exclusive
 * or shared by any number of processes, and is released on disposal.
 *
 * Node itself has no file locks. SQLite's locks on an empty database file are record
 * locks, and leave no stale files to deal with.
 * @returns undefined while another process holds a conflicting lock
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
      `Cannot lock ${path}: this user cannot open and lock the file; run ` +
        'as the user who created it, on a local disk',
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

/** An open file with a descriptor lock. A child that inherits `fd` shares the lock. */
export interface DescriptorLock extends Disposable {
  readonly fd: number;
  /**
   * false if this system has no `flock` or the file system does not support such locks.
   */
  readonly isLocked: boolean;
}

/**
 * Opens the file and locks it exclusively. The lock lasts until this process, and every
 * child that inherited the descriptor, has closed it.
 *
 * The program `flock` (util-linux, BusyBox) locks an inherited descriptor and exits. The
 * lock stays with the open file, which this process shares.
 * @returns undefined while the lock is held through another open file
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
  // BusyBox exits with 1 for every failure, but leaves stderr empty only when the lock is
  // held by someone else.
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
