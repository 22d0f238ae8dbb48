/**
 * The embedded Postgres: what runs where no DATABASE_URL is set. Any number of commands share one
 * server on one data folder; the first to come starts it, the last to leave stops it.
 *
 * Two kernel locks say who is who, so that no kill -9 leaves a lie behind: `turn` is held by the one
 * that starts or stops, `holders` is shared by everybody who uses the server. Whoever can take
 * `holders` exclusively is the last. A server whose holders were all killed runs on, and the next
 * command takes it over.
 */
import * as fs from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { PermanentError, RetryableError } from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import { type Cluster, ensureData, openCluster, SUPERUSER } from './data-folder.ts';
import { ensureServer, findServer, stopServer } from './server.ts';

/** Longer than the longest start or stop of another command. */
const TURN_TIMEOUT_MS = 120_000;
const LOOK_EVERY_MS = 2_000;
const NEVER = new AbortController().signal;
const LOCK_POLL_MS = 20;
const SQLITE_BUSY = 5;
const DATABASE = 'postgres';

type Said = Pick<Log, 'info' | 'warn'>;

interface EmbeddedPostgresOptions {
  /** The server's files lie in its subfolder `postgres`. */
  readonly dataDir: string;
  readonly log: Said;
  readonly signal?: AbortSignal;
  /** false for throw-away data (tests): faster, lost at a power cut. */
  readonly durable?: boolean;
}

/** Disposing leaves the server; the last one to leave stops it. */
export interface EmbeddedPostgres extends AsyncDisposable {
  /** For this machine only; holds the password. */
  readonly connectionString: string;
}

/**
 * @throws PermanentError `EMBEDDED_BINARIES`, `EMBEDDED_ACCOUNT`,
 *   `EMBEDDED_VERSION`, `EMBEDDED_INITDB`, `EMBEDDED_NOT_OURS`, `EMBEDDED_PASSWORD`, `EMBEDDED_LOCK`
 * @throws RetryableError `EMBEDDED_START`, `EMBEDDED_BUSY`; the signal's reason when aborted
 */
export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions,
): Promise<EmbeddedPostgres> {
  const { dataDir, log, signal = NEVER, durable = true } = options;
  const cluster = await openCluster(dataDir, durable);
  return inTurn(cluster, signal, async () => {
    // Only somebody's turn takes it exclusively, and this is ours.
    const hold = takeLock(holdersLock(cluster), 'shared');
    if (hold === undefined)
      throw new Error(`${holdersLock(cluster)} is locked outside of a turn`);
    try {
      const password = await ensureData(cluster);
      const { pid, port } = await ensureServer(cluster, signal);
      log.info({ serverPid: pid, port, dir: cluster.dir }, 'Embedded Postgres ready');
      const stop = new AbortController();
      const keeping = keepServer(cluster, port, log, stop.signal);
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

async function inTurn<Result>(
  { home }: Cluster,
  signal: AbortSignal,
  work: () => Promise<Result>,
) {
  const path = join(home, 'turn.lock');
  const limits = {
    waitMs: TURN_TIMEOUT_MS,
    stepMinMs: LOCK_POLL_MS,
    stepMaxMs: LOCK_POLL_MS,
    signal,
  };
  const message = `Cannot lock ${path}: another command has held it for ${TURN_TIMEOUT_MS / 1000} s; try again when it is done`;
  const busy = () =>
    new RetryableError(message, { code: 'EMBEDDED_BUSY', meta: { path } });
  using held = new DisposableStack();
  held.use(await waitFor(async () => takeLock(path, 'exclusive'), limits, busy));
  return await work();
}

/**
 * A lock that the kernel takes back from a process however it ends, kill -9 included. Node has no flock; SQLite's own
 * locks on an empty database file are such locks, and need no stale-file rules.
 * Any number of shared locks, or one exclusive lock, on the file (made where missing), until it is disposed of.
 * @returns undefined while somebody else holds it in a way that excludes this
 * @throws PermanentError `EMBEDDED_LOCK` where the file cannot be locked at all
 */
function takeLock(path: string, mode: 'shared' | 'exclusive'): Disposable | undefined {
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { timeout: 0 });
    database.exec(
      mode === 'exclusive'
        ? 'BEGIN EXCLUSIVE'
        : 'BEGIN; SELECT count(*) FROM sqlite_schema',
    );
    return database;
  } catch (error) {
    database?.close();
    if (error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY)
      return undefined;
    throw new PermanentError(
      `Cannot lock ${path}: the file cannot be opened and locked by this user; run as the user who made it, on a local disk`,
      { code: 'EMBEDDED_LOCK', meta: { path }, cause: error },
    );
  }
}

/**
 * A server that died without its holders (killed, out of memory) is started again, on its old port, by the first holder
 * that sees it. Works until the signal, and keeps no process alive by itself.
 */
async function keepServer(
  cluster: Cluster,
  port: number,
  log: Said,
  signal: AbortSignal,
): Promise<void> {
  const { dir } = cluster;
  for (;;) {
    await sleep(LOOK_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined);
    if (signal.aborted) return;
    if (!fs.existsSync(dir) || findServer(dir) !== undefined) continue;
    try {
      const server = await inTurn(cluster, signal, () =>
        ensureServer(cluster, signal, port),
      );
      const facts = { serverPid: server.pid, port: server.port, oldPort: port, dir };
      const where =
        server.port === port ? 'runs again' : 'runs on another port: start again';
      log.warn(facts, `Embedded Postgres had ended, and ${where}`);
    } catch (error) {
      if (!signal.aborted)
        log.warn({ err: error, dir }, 'Embedded Postgres could not be started again');
    }
  }
}

function holdersLock({ home }: Cluster): string {
  return join(home, 'holders.lock');
}

async function leave(cluster: Cluster, hold: Disposable, log: Said): Promise<void> {
  hold[Symbol.dispose]();
  using last = takeLock(holdersLock(cluster), 'exclusive');
  if (last === undefined || !fs.existsSync(cluster.dir)) return;
  if (await stopServer(cluster))
    log.info({ dir: cluster.dir }, 'Embedded Postgres stopped');
  else log.warn({ dir: cluster.dir }, 'Embedded Postgres does not stop');
}
