/**
 * The embedded Postgres, which is used if no DATABASE_URL is set. Any number of commands
 * can share one server on a data folder: the first starts it, and the last stops it.
 *
 * Two kernel locks decide which command is first and which is last, so that even
 * `kill -9` leaves no stale state. A command holds `turn.lock` while it starts or stops
 * the server. Every command that uses the server shares `holders.lock`; a command that
 * can take it exclusively is the last. If all its commands are killed, the server keeps
 * running and the next command takes it over. A server that this process cannot see, for
 * example in another container, is left alone (see usage.ts).
 */
import * as fs from 'node:fs';
import { join } from 'node:path';
import { waitFor } from '../concurrency/timeouts.ts';
import { RetryableError } from '../errors/errors.ts';
import {
  type Cluster,
  ensureData,
  openCluster,
  SUPERUSER,
} from './data-folder.ts';
import { keepServer, type ServerLog } from './keeper.ts';
import { takeRecordLock } from './locks.ts';
import { ensureServer, isServerUnseen, stopServer } from './server.ts';
import { isOurs, readUsage, refuseForeignUse } from './usage.ts';

/**
 * How long to wait for a turn. Must exceed the longest time that another command's start
 * or stop can take.
 */
const TURN_TIMEOUT_MS = 120_000;
const LOCK_POLL_MS = 20;
const NEVER = new AbortController().signal;
const DATABASE = 'postgres';

export interface EmbeddedPostgresOptions {
  /** The server's files are in the subfolder `postgres` of this folder. */
  readonly dataDir: string;
  readonly log: ServerLog;
  readonly signal?: AbortSignal;
  /**
   * false for throwaway data, as in tests. This is faster, but the data does not survive
   * a power failure.
   */
  readonly durable?: boolean;
}

/**
 * A server in use. On disposal this command stops using it, and the last command to do so
 * stops the server.
 */
export interface EmbeddedPostgres extends AsyncDisposable {
  /** The address with the password; it works only on this machine. */
  readonly connectionString: string;
}

/**
 * Starts the server of a data folder, or joins the one that is already running.
 * @throws PermanentError `EMBEDDED_BINARIES`, `EMBEDDED_ACCOUNT`, `EMBEDDED_VERSION`,
 *   `EMBEDDED_INITDB`, `EMBEDDED_NOT_OURS`, `EMBEDDED_PASSWORD`, `EMBEDDED_LOCK`,
 *   `EMBEDDED_IN_USE`, `EMBEDDED_DAMAGED`
 * @throws RetryableError `EMBEDDED_START`, `EMBEDDED_BUSY`; the signal's reason when
 *   aborted
 */
export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions,
): Promise<EmbeddedPostgres> {
  const { dataDir, log, signal = NEVER, durable = true } = options;
  const cluster = await openCluster(dataDir, durable);
  return inTurn(cluster, signal, async () => {
    const isUnseen = isServerUnseen(cluster.dir);
    await refuseForeignUse(
      cluster.home,
      holdersLock(cluster),
      isUnseen,
      signal,
    );
    // Only a command that holds `turn.lock` may take this lock exclusively. We hold
    // `turn.lock`, so nobody can be holding this lock exclusively, and sharing it must
    // succeed.
    const hold = takeRecordLock(holdersLock(cluster), 'shared');
    if (hold === undefined)
      throw new Error(`${holdersLock(cluster)} is locked outside of a turn`);

    try {
      const password = await ensureData(cluster, signal);
      const { pid, port } = await ensureServer(cluster, signal);
      log.info(
        { serverPid: pid, port, dir: cluster.dir },
        'Embedded Postgres ready',
      );
      const stop = new AbortController();
      const keeping = keepServer({
        cluster,
        port,
        log,
        inTurn: (work) => inTurn(cluster, stop.signal, work),
        signal: stop.signal,
      });
      return {
        connectionString: `postgres://${SUPERUSER}:${password}@127.0.0.1:${port}/${DATABASE}`,
        [Symbol.asyncDispose]: async () => {
          stop.abort();
          await keeping;
          await inTurn(cluster, NEVER, () => leave(cluster, hold, log));
        },
      };
    } catch (error) {
      await leave(cluster, hold, log);
      signal.throwIfAborted();
      throw error;
    }
  });
}

/**
 * Runs `work` while no other command starts or stops the server of this data folder.
 * @throws RetryableError `EMBEDDED_BUSY` if another command's turn takes too long
 */
async function inTurn<Result>(
  { home }: Cluster,
  signal: AbortSignal,
  work: () => Promise<Result>,
): Promise<Result> {
  const path = join(home, 'turn.lock');
  const limits = {
    waitMs: TURN_TIMEOUT_MS,
    stepMinMs: LOCK_POLL_MS,
    stepMaxMs: LOCK_POLL_MS,
    signal,
  };
  const busy = (): Error =>
    new RetryableError(
      `Cannot lock ${path}: another command has held it for ` +
        `${TURN_TIMEOUT_MS / 1000} s; try again when it is done`,
      { code: 'EMBEDDED_BUSY', meta: { path } },
    );
  const attempt = async (): Promise<Disposable | undefined> =>
    takeRecordLock(path, 'exclusive');
  const turn = await waitFor(attempt, limits, busy);
  try {
    return await work();
  } finally {
    turn[Symbol.dispose]();
  }
}

function holdersLock({ home }: Cluster): string {
  return join(home, 'holders.lock');
}

/**
 * Releases this command's share, and stops the server if no other command is using it.
 */
async function leave(
  cluster: Cluster,
  hold: Disposable,
  log: ServerLog,
): Promise<void> {
  hold[Symbol.dispose]();
  using last = takeRecordLock(holdersLock(cluster), 'exclusive');
  if (last === undefined || !fs.existsSync(cluster.dir)) return;
  const usage = readUsage(cluster.home);
  // A server in another container must not be stopped from here.
  if (usage !== undefined && !isOurs(usage)) return;

  if (await stopServer(cluster))
    log.info({ dir: cluster.dir }, 'Embedded Postgres stopped');
  else log.warn({ dir: cluster.dir }, 'Embedded Postgres does not stop');
}
