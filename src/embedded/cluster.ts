/**
 * One Postgres data folder and the server on it: made whole or not at all, started, recognised again
 * whoever started it, stopped. Callers hold the folder's lock (see postgres.ts) around every change.
 *
 * The server's user may be unable to enter the folders above (a checkout below /root), so server and
 * initdb are started inside the data folder and know it only as `/proc/self/cwd`.
 */
import { spawn, spawnSync } from 'node:child_process';
import * as fs from 'node:fs';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { PermanentError, RetryableError, errorCode } from '../core/errors.ts';
import type { Account } from './account.ts';
import { type Binaries, SERVER_ENV } from './binaries.ts';
import {
  type Server,
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
const POLL_MS = 10;
const LOG_TAIL_CHARS = 2_000;
/** In order, then without (the next start recovers). */
const STOPS = [
  ['SIGINT', 30_000],
  ['SIGQUIT', 10_000],
  ['SIGKILL', 10_000],
] as const;

const SERVER_SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
  shared_buffers: '128MB',
  max_wal_size: '1GB',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_checkpoints: 'off',
  // Whoever sends a statement hears its error. A server that runs for months must not fill the disk with them.
  log_min_messages: 'log',
};

export interface Cluster {
  /** Holds the data folder, its password and the server's log. */
  readonly home: string;
  readonly dir: string;
  readonly account: Account;
  readonly binaries: Binaries;
  /** false only for throw-away data: a killed server keeps it, a power cut does not. */
  readonly isDurable: boolean;
}

/**
 * Makes the data folder where there is none. A crash on the way leaves only a staging folder, which the next call clears.
 * @throws PermanentError `EMBEDDED_INITDB`, `EMBEDDED_VERSION`
 */
export function ensureData({ home, dir, account, binaries, isDurable }: Cluster, passwordFile: string): void {
  const { major, binDir } = binaries;
  clearStaging(home);
  if (fs.existsSync(dir)) {
    const found = fs.readFileSync(join(dir, 'PG_VERSION'), 'utf8').trim();
    if (found === major) return;
    throw new PermanentError(
      `Cannot start the embedded Postgres on ${dir}: its data is of version ${found}, the binaries are ${major}; use the release that made it, or move the folder away to begin anew`,
      { code: 'EMBEDDED_VERSION', meta: { dir, found, expected: major } },
    );
  }
  const staging = fs.mkdtempSync(join(home, 'initdb-'));
  withFolder(staging, (handle) => giveTo(account, handle));
  const password = fs.openSync(passwordFile, 'r');
  const args = ['-D', HERE, '-U', SUPERUSER, '--auth=scram-sha-256', '--pwfile=/proc/self/fd/3'];
  args.push('--encoding=UTF8', '--locale=C', '--no-instructions', ...(isDurable ? [] : ['--no-sync']));
  const ended = spawnSync(join(binDir, 'initdb'), args, {
    ...account,
    cwd: staging,
    env: SERVER_ENV,
    encoding: 'utf8',
    stdio: ['ignore', 'ignore', 'pipe', password],
    timeout: INITDB_TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  fs.closeSync(password);
  if (ended.status !== 0) {
    const stderr = (ended.stderr ?? '').slice(-LOG_TAIL_CHARS);
    const end = ended.status ?? ended.signal ?? errorCode(ended.error);
    const reason = stderr.trim().split('\n').at(-1) || `initdb ended with ${end}`;
    throw new PermanentError(
      `Cannot make the embedded Postgres's data folder in ${home}: ${reason}; free space or rights may be missing`,
      { code: 'EMBEDDED_INITDB', meta: { home, stderr }, cause: ended.error },
    );
  }
  fs.renameSync(staging, dir);
  withFolder(home, fs.fsyncSync);
}

/**
 * The server on this data folder, running and ready: the one found, or a new one.
 * @param port where its users look for it
 * @throws RetryableError `EMBEDDED_START`
 */
export async function ensureServer(cluster: Cluster, signal: AbortSignal, port?: number): Promise<Server> {
  const { dir } = cluster;
  // The port it had before, so that whoever still uses a server that was killed finds the next one. Read before the
  // wait: a server that ends in order takes its pid file along.
  const ports = [port ?? readPidFile(dir)?.port, 0, 0];
  const deadlineMs = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const pids = serverPids(dir);
    // Backends of a killed server end by themselves; one that starts becomes ready.
    if (pids.length === 0) break;
    const found = readPidFile(dir);
    if (found?.status === 'ready' && pids.includes(found.pid)) return found;
    if (performance.now() > deadlineMs) {
      const state = `processes of an earlier start are neither ready nor gone (${pids.join(', ')})`;
      throw startError(cluster, state);
    }
    await sleep(POLL_MS, undefined, { signal });
  }
  // Nothing runs here, so it is stale; Postgres would take a zombie, or a reused pid, for a living server.
  fs.rmSync(join(dir, 'postmaster.pid'), { force: true });
  for (const wanted of ports) {
    const server = await launch(cluster, await findFreePort(wanted), deadlineMs, signal);
    if (server !== undefined) return server;
  }
  throw startError(cluster, `it ended at once, ${ports.length} times`);
}

/** @returns undefined where it ended at once */
async function launch(cluster: Cluster, port: number, deadlineMs: number, signal: AbortSignal) {
  const { dir, account, binaries, isDurable } = cluster;
  const file = logFile(cluster);
  if (fs.existsSync(file)) fs.renameSync(file, `${file}.old`);
  const flags =
    fs.constants.O_WRONLY | fs.constants.O_APPEND | fs.constants.O_CREAT | fs.constants.O_NOFOLLOW;
  const log = fs.openSync(file, flags, 0o600);
  const durability = isDurable ? {} : { fsync: 'off', full_page_writes: 'off' };
  const settings = { ...SERVER_SETTINGS, ...durability, cluster_name: clusterName(dir) };
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const child = spawn(join(binaries.binDir, 'postgres'), ['-D', HERE, '-p', String(port), ...options], {
    ...account,
    cwd: dir,
    env: SERVER_ENV,
    // A session of its own: Ctrl-C ends us, and we end the server when our work is put away.
    detached: true,
    stdio: ['ignore', log, log],
  });
  fs.closeSync(log);
  child.unref();
  try {
    await once(child, 'spawn');
  } catch (error) {
    throw startError(cluster, errorCode(error), error);
  }
  while (child.exitCode === null && child.signalCode === null) {
    const server = findServer(dir);
    if (server?.pid === child.pid && server?.status === 'ready') return server;
    if (performance.now() > deadlineMs) throw startError(cluster, 'it was not ready in time');
    await sleep(POLL_MS, undefined, { signal });
  }
  return undefined;
}

function logFile({ home }: Cluster): string {
  return join(home, 'server.log');
}

function startError(cluster: Cluster, state: string, cause?: unknown): RetryableError {
  const { dir } = cluster;
  const file = logFile(cluster);
  const log = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').slice(-LOG_TAIL_CHARS) : '';
  const fatal = log.split('\n').findLast((line) => /\b(?:FATAL|PANIC):/.test(line));
  const message = `Cannot start the embedded Postgres on ${dir}: ${fatal ?? state}; see ${file}`;
  return new RetryableError(message, { code: 'EMBEDDED_START', meta: { dir, state, log }, cause });
}

/** @returns false where it still runs */
export async function stopServer({ dir }: Cluster): Promise<boolean> {
  for (const [signal, limitMs] of STOPS) {
    // Before it has written its pid file, a server that starts is its only process.
    const pid = findServer(dir)?.pid ?? serverPids(dir)[0];
    if (pid === undefined) return true;
    sendSignal(pid, signal);
    const deadlineMs = performance.now() + limitMs;
    // To look at every process costs a hundred times what it costs to look at the server's.
    while (findServer(dir) !== undefined || serverPids(dir).length > 0) {
      if (performance.now() > deadlineMs) break;
      await sleep(POLL_MS);
    }
  }
  return serverPids(dir).length === 0;
}

/** What killed first starts left. An initdb that outlived its parent may still write: then the next start clears. */
function clearStaging(home: string): void {
  for (const name of fs.readdirSync(home).filter((entry) => entry.startsWith('initdb-'))) {
    try {
      fs.rmSync(join(home, name), { recursive: true, force: true });
    } catch (error) {
      if (!['ENOTEMPTY', 'ENOENT'].includes(errorCode(error))) throw error;
    }
  }
}

/** @param wanted taken where it is free */
async function findFreePort(wanted = 0): Promise<number> {
  const server = createServer();
  try {
    await once(server.listen(wanted, '127.0.0.1'), 'listening');
  } catch (error) {
    if (wanted === 0) throw error;
    return findFreePort();
  }
  const { port } = server.address() as AddressInfo;
  await once(server.close(), 'close');
  return port;
}

/** What root has just made, for the server's user; by handle, so that it is what was made. */
export function giveTo({ uid, gid }: Account, handle: number): void {
  if (uid !== undefined && gid !== undefined) fs.fchownSync(handle, uid, gid);
}

function withFolder(path: string, work: (handle: number) => void): void {
  const handle = fs.openSync(
    path,
    fs.constants.O_RDONLY | fs.constants.O_DIRECTORY | fs.constants.O_NOFOLLOW,
  );
  try {
    work(handle);
  } finally {
    fs.closeSync(handle);
  }
}
