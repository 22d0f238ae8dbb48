/**
 * The embedded Postgres: what runs where no DATABASE_URL is set. Any number of commands share one
 * server on one data folder; the first to come starts it, the last to leave stops it.
 *
 * Two kernel locks say who is who, so that no kill -9 leaves a lie behind: `turn` is held by the one
 * that starts or stops, `holders` is shared by everybody who uses the server. Whoever can take
 * `holders` exclusively is the last. A server whose holders were all killed runs on, and the next
 * command takes it over.
 */
import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PermanentError, errorCode } from '../core/errors.ts';
import { makeFolders } from '../core/folders.ts';
import type { Log } from '../core/log.ts';
import { serverAccount } from './account.ts';
import { findBinaries } from './binaries.ts';
import { type Cluster, ensureData, ensureServer, giveTo, stopServer, SUPERUSER } from './cluster.ts';
import { takeLock, waitForLock } from './file-lock.ts';
import { findServer } from './server-processes.ts';

/** Longer than the longest start or stop of another command. */
const TURN_TIMEOUT_MS = 120_000;
const LOOK_EVERY_MS = 2_000;
const NEVER = new AbortController().signal;
const PASSWORD_BYTES = 24;
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
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const { log, signal = NEVER } = options;
  const cluster = await openCluster(options);
  return inTurn(cluster, signal, async () => {
    // Only somebody's turn takes it exclusively, and this is ours.
    const hold = takeLock(holdersLock(cluster), 'shared');
    if (hold === undefined) throw new Error(`${holdersLock(cluster)} is locked outside of a turn`);
    try {
      const passwordFile = join(cluster.home, 'password');
      const password = ensurePassword(cluster, passwordFile);
      ensureData(cluster, passwordFile);
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

async function openCluster({ dataDir, durable = true }: EmbeddedPostgresOptions): Promise<Cluster> {
  const home = join(resolve(dataDir), 'postgres');
  const ownUid = process.getuid?.() ?? 0;
  const account = serverAccount(ownUid, await ownerOf(home, ownUid));
  const binaries = findBinaries(account);
  return { home, dir: join(home, 'cluster'), account, binaries, isDurable: durable };
}

/**
 * Makes `home` where it is missing. Only we may change what lies in it: where another could, root would write
 * through whatever that one puts there.
 * @returns the uid that the data in it belongs to
 */
async function ownerOf(home: string, ownUid: number): Promise<number> {
  try {
    await makeFolders(dirname(home));
    await makeFolders(home, 0o700);
    const isOurs =
      ownUid === 0
        ? isOnlyRoots(fs.statSync(dirname(home)), true) && isOnlyRoots(fs.lstatSync(home), false)
        : fs.statSync(home).uid === ownUid;
    if (isOurs) return fs.lstatSync(join(home, 'cluster'), { throwIfNoEntry: false })?.uid ?? ownUid;
  } catch (error) {
    throw notOurs(home, error);
  }
  throw notOurs(home);
}

const STICKY = 0o1000;

/** @param isParent where others may make files, as in /tmp, but not rename ours */
function isOnlyRoots(found: fs.Stats, isParent: boolean): boolean {
  const isClosed = (found.mode & 0o022) === 0 || (isParent && (found.mode & STICKY) !== 0);
  return found.isDirectory() && found.uid === 0 && isClosed;
}

function notOurs(home: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot use ${home} for the embedded Postgres: it belongs to another user, others may write it, or it cannot be written (${cause === undefined ? 'EACCES' : errorCode(cause)}); run as its owner, or set DATA_DIR`,
    { code: 'EMBEDDED_NOT_OURS', meta: { home }, cause },
  );
}

async function inTurn<Result>({ home }: Cluster, signal: AbortSignal, work: () => Promise<Result>) {
  using held = new DisposableStack();
  held.use(await waitForLock(join(home, 'turn.lock'), TURN_TIMEOUT_MS, signal));
  return await work();
}

/**
 * A server that died without its holders (killed, out of memory) is started again, on its old port, by the first holder
 * that sees it. Works until the signal, and keeps no process alive by itself.
 */
async function keepServer(cluster: Cluster, port: number, log: Said, signal: AbortSignal): Promise<void> {
  const { dir } = cluster;
  for (;;) {
    await sleep(LOOK_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined);
    if (signal.aborted) return;
    if (!fs.existsSync(dir) || findServer(dir) !== undefined) continue;
    try {
      const server = await inTurn(cluster, signal, () => ensureServer(cluster, signal, port));
      const facts = { serverPid: server.pid, port: server.port, oldPort: port, dir };
      const where = server.port === port ? 'runs again' : 'runs on another port: start again';
      log.warn(facts, `Embedded Postgres had ended, and ${where}`);
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, dir }, 'Embedded Postgres could not be started again');
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
  if (await stopServer(cluster)) log.info({ dir: cluster.dir }, 'Embedded Postgres stopped');
  else log.warn({ dir: cluster.dir }, 'Embedded Postgres does not stop');
}

/** Made once, before the data folder that is made with it. Other users of the machine stay out. */
function ensurePassword({ dir, home, account }: Cluster, path: string): string {
  if (fs.existsSync(dir)) return readPassword(home, path);
  const password = randomBytes(PASSWORD_BYTES).toString('base64url');
  // Left by a start that was killed before there was any data.
  fs.rmSync(path, { force: true });
  // Exclusive, so it follows no link.
  const file = fs.openSync(path, 'wx', 0o600);
  fs.writeSync(file, password);
  // initdb opens it again, as the server's user; nobody else enters the folder.
  giveTo(account, file);
  fs.fsyncSync(file);
  fs.closeSync(file);
  return password;
}

function readPassword(home: string, path: string): string {
  try {
    return fs.readFileSync(path, 'utf8').trim();
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw notOurs(home, error);
    throw new PermanentError(
      `Cannot open the embedded Postgres in ${home}: its file 'password' is missing; put it back, or move the folder away to begin anew`,
      { code: 'EMBEDDED_PASSWORD', meta: { home }, cause: error },
    );
  }
}
