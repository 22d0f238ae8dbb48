/**
 * One Postgres data folder and the server on it: made whole or not at all, started, recognised again
 * whoever started it, stopped. Callers hold the folder's lock (see postgres.ts) around every change.
 *
 * The server's user may be unable to enter the folders above (a checkout below /root), so server and
 * initdb are started inside the data folder and know it only as `/proc/self/cwd`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fchownSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
} from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PermanentError, RetryableError, errorCode } from '../core/errors.ts';
import type { Account } from './account.ts';
import { type Binaries, SERVER_ENV } from './binaries.ts';
import {
  type Server,
  allGone,
  clusterName,
  findServer,
  readPidFile,
  sendSignal,
  serverPids,
} from './server-processes.ts';

export const SUPERUSER = 'ledger_mirror';

const HERE = '/proc/self/cwd';
const INITDB_TIMEOUT_MS = 60_000;
/** Recovery after a crash replays at most a few checkpoints of WAL. */
const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 30_000;
const KILL_TIMEOUT_MS = 10_000;
const POLL_MS = 10;
const PORT_ATTEMPTS = 3;
const LOG_TAIL_CHARS = 2_000;
/** Twice that with the log before it. */
const LOG_BYTES_MAX = 16 * 1024 * 1024;

export interface Cluster {
  /** Holds the data folder, its password and the server's log. */
  readonly home: string;
  readonly dir: string;
  readonly passwordFile: string;
  readonly logFile: string;
  readonly account: Account;
  readonly binaries: Binaries;
  /** false only for throw-away data: a killed server keeps it, a power cut does not. */
  readonly durable: boolean;
}

/**
 * Makes the data folder where there is none. A crash on the way leaves only a staging folder, which
 * the next call clears.
 * @throws PermanentError `EMBEDDED_INITDB`, `EMBEDDED_VERSION`
 */
export async function ensureCluster(cluster: Cluster, signal: AbortSignal): Promise<void> {
  clearStaging(cluster.home);
  if (existsSync(cluster.dir)) {
    const found = readFileSync(join(cluster.dir, 'PG_VERSION'), 'utf8').trim();
    if (found === cluster.binaries.major) return;
    throw new PermanentError(
      `Cannot start the embedded Postgres on ${cluster.dir}: its data is of version ${found}, the binaries are ${cluster.binaries.major}; use the release that made it, or move the folder away to begin anew`,
      { code: 'EMBEDDED_VERSION', meta: { dir: cluster.dir, found, expected: cluster.binaries.major } },
    );
  }
  const staging = mkdtempSync(join(cluster.home, 'initdb-'));
  giveFolder(cluster.account, staging);
  await initdb(cluster, staging, signal);
  renameSync(staging, cluster.dir);
  syncFolder(cluster.home);
}

/** What killed first starts left. An initdb that outlived its parent may still write: then the next start clears. */
function clearStaging(home: string): void {
  for (const name of readdirSync(home)) {
    if (!name.startsWith('initdb-')) continue;
    try {
      rmSync(join(home, name), { recursive: true, force: true });
    } catch (error) {
      if (!['ENOTEMPTY', 'ENOENT'].includes(errorCode(error))) throw error;
    }
  }
}

async function initdb(cluster: Cluster, staging: string, signal: AbortSignal): Promise<void> {
  const password = openSync(cluster.passwordFile, 'r');
  const args = ['-D', HERE, '-U', SUPERUSER, '--auth=scram-sha-256', '--pwfile=/proc/self/fd/3'];
  args.push('--encoding=UTF8', '--locale=C', '--no-instructions');
  if (!cluster.durable) args.push('--no-sync');
  const child = spawn(join(cluster.binaries.binDir, 'initdb'), args, {
    ...cluster.account,
    cwd: staging,
    env: SERVER_ENV,
    stdio: ['ignore', 'ignore', 'pipe', password],
    timeout: INITDB_TIMEOUT_MS,
    killSignal: 'SIGKILL',
    signal,
  });
  closeSync(password);
  let stderr = '';
  child.stderr?.on('data', (chunk: Buffer) => (stderr = (stderr + chunk.toString()).slice(-LOG_TAIL_CHARS)));
  let cause: unknown;
  try {
    await once(child, 'close');
    if (child.exitCode === 0) return;
  } catch (error) {
    signal.throwIfAborted();
    cause = error;
  }
  const reason = stderr.trim().split('\n').at(-1) ?? '';
  throw new PermanentError(
    `Cannot make the embedded Postgres's data folder in ${cluster.home}: ${reason || `initdb ended with ${child.exitCode ?? child.signalCode ?? errorCode(cause)}`}; free space or rights may be missing`,
    { code: 'EMBEDDED_INITDB', meta: { home: cluster.home, stderr }, cause },
  );
}

/**
 * The server on this data folder, running and ready: the one found, or a new one.
 * @throws RetryableError `EMBEDDED_START`
 */
export async function ensureServer(cluster: Cluster, signal: AbortSignal): Promise<Server> {
  const deadlineMs = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const pids = serverPids(cluster.dir);
    // Backends of a killed server end by themselves; one that starts becomes ready.
    if (pids.length === 0) break;
    const found = readPidFile(cluster.dir);
    if (found?.status === 'ready' && pids.includes(found.pid)) return found;
    if (performance.now() > deadlineMs) {
      throw startError(
        cluster,
        `processes of an earlier start are neither ready nor gone (${pids.join(', ')})`,
      );
    }
    await sleep(POLL_MS, undefined, { signal });
  }
  const oldPort = readPidFile(cluster.dir)?.port;
  // Nothing runs here, so it is stale; Postgres would take a zombie, or a reused pid, for a living server.
  rmSync(join(cluster.dir, 'postmaster.pid'), { force: true });
  for (let attempt = 1; attempt <= PORT_ATTEMPTS; attempt += 1) {
    // The port it had before, so that whoever still uses a server that was killed finds the next one.
    const port = await freePort(attempt === 1 ? oldPort : undefined);
    const server = await launch(cluster, port, deadlineMs, signal);
    if (server !== undefined) return server;
  }
  throw startError(cluster, `it ended at once, ${PORT_ATTEMPTS} times`);
}

/**
 * Stops it in order; what does not end in time is ended without (the next start recovers).
 * @returns false where it still runs
 */
export async function stopServer(cluster: Cluster): Promise<boolean> {
  const stages = [
    { signal: 'SIGINT', limitMs: STOP_TIMEOUT_MS },
    { signal: 'SIGQUIT', limitMs: KILL_TIMEOUT_MS },
    { signal: 'SIGKILL', limitMs: KILL_TIMEOUT_MS },
  ] as const;
  for (const { signal, limitMs } of stages) {
    // Before it has written its pid file, a server that starts is its only process.
    const pid = findServer(cluster.dir)?.pid ?? serverPids(cluster.dir)[0];
    if (pid === undefined) return true;
    sendSignal(pid, signal);
    if (await allGone(cluster.dir, limitMs)) return true;
  }
  return false;
}

/** A server that runs for months must not fill the disk: the log before the last megabytes goes. */
export function boundLog({ logFile }: Pick<Cluster, 'logFile'>, bytesMax = LOG_BYTES_MAX): void {
  if ((statSync(logFile, { throwIfNoEntry: false })?.size ?? 0) <= bytesMax) return;
  copyFileSync(logFile, `${logFile}.old`);
  // The server appends: its next line is the first of the emptied file.
  truncateSync(logFile);
}

async function launch(
  cluster: Cluster,
  port: number,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<Server | undefined> {
  if (existsSync(cluster.logFile)) renameSync(cluster.logFile, `${cluster.logFile}.old`);
  const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW;
  const log = openSync(cluster.logFile, flags, 0o600);
  const child = spawn(join(cluster.binaries.binDir, 'postgres'), serverArguments(cluster, port), {
    ...cluster.account,
    cwd: cluster.dir,
    env: SERVER_ENV,
    // A session of its own: Ctrl-C ends us, and we end the server when our work is put away.
    detached: true,
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  child.unref();
  try {
    await once(child, 'spawn');
  } catch (error) {
    throw startError(cluster, errorCode(error), error);
  }
  while (isAlive(child)) {
    const server = findServer(cluster.dir);
    if (server?.pid === child.pid && server?.status === 'ready') return server;
    if (performance.now() > deadlineMs) throw startError(cluster, 'it was not ready in time');
    await sleep(POLL_MS, undefined, { signal });
  }
  return undefined;
}

function serverArguments(cluster: Cluster, port: number): string[] {
  const settings: Record<string, string> = {
    cluster_name: clusterName(cluster.dir),
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    max_connections: '200',
    shared_buffers: '128MB',
    max_wal_size: '1GB',
    timezone: 'UTC',
    log_timezone: 'UTC',
    log_checkpoints: 'off',
    ...(cluster.durable ? {} : { fsync: 'off', full_page_writes: 'off' }),
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  return ['-D', HERE, '-p', String(port), ...options];
}

function isAlive(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}

/** @param wanted taken where it is free */
async function freePort(wanted = 0): Promise<number> {
  const server = createServer();
  try {
    await once(server.listen(wanted, '127.0.0.1'), 'listening');
  } catch (error) {
    if (wanted === 0) throw error;
    return freePort();
  }
  const address = server.address();
  await once(server.close(), 'close');
  return typeof address === 'object' && address !== null ? address.port : wanted;
}

/** What root has just made, for the server's user; by handle, so that it is what was made. */
export function giveTo({ uid, gid }: Account, handle: number): void {
  if (uid !== undefined && gid !== undefined) fchownSync(handle, uid, gid);
}

function giveFolder(account: Account, path: string): void {
  const handle = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    giveTo(account, handle);
  } finally {
    closeSync(handle);
  }
}

function syncFolder(dir: string): void {
  const handle = openSync(dir, 'r');
  fsyncSync(handle);
  closeSync(handle);
}

function startError(cluster: Cluster, state: string, cause?: unknown): RetryableError {
  const log = existsSync(cluster.logFile) ? readFileSync(cluster.logFile, 'utf8').slice(-LOG_TAIL_CHARS) : '';
  const fatal = log.split('\n').findLast((line) => /\b(?:FATAL|PANIC):/.test(line));
  return new RetryableError(
    `Cannot start the embedded Postgres on ${cluster.dir}: ${fatal ?? state}; see ${cluster.logFile}`,
    { code: 'EMBEDDED_START', meta: { dir: cluster.dir, state, log }, cause },
  );
}
