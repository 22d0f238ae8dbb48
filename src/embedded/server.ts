/**
 * Starts and stops the server on a data folder, and recognises a running server no matter
 * which process started it. Callers that change anything must hold `turn.lock` (see
 * postgres.ts).
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RetryableError, errorCode } from '../errors/errors.ts';
import { SERVER_ENV } from './binaries.ts';
import { type Cluster, damaged } from './data-folder.ts';
import { HOST } from './host.ts';
import { logSince, openLog, serverLogFile } from './server-log.ts';
import {
  describeUsage,
  readUsage,
  removeUsage,
  takeServerLock,
  writeUsage,
} from './usage.ts';

/**
 * How long a start may take. Crash recovery replays at most a few checkpoints' worth of
 * WAL.
 */
const START_TIMEOUT_MS = 60_000;
const POLL_MS = 10;

/** One way to stop the server, and how long it may take. */
interface StopStage {
  readonly signal: NodeJS.Signals;
  readonly limitMs: number;
}

/**
 * The stages are tried in this order. After either of the last two, the next start has to
 * recover.
 */
const STOP_STAGES: readonly StopStage[] = [
  { signal: 'SIGINT', limitMs: 30_000 },
  { signal: 'SIGQUIT', limitMs: 10_000 },
  { signal: 'SIGKILL', limitMs: 10_000 },
];

const SERVER_SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
  shared_buffers: '128MB',
  max_wal_size: '1GB',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_checkpoints: 'off',
  // Omit statement errors, which the client receives anyway. A server that runs for
  // months must not fill the disk with them.
  log_min_messages: 'log',
};

/**
 * For tests, which run many mirrors on one server and can afford to lose data in a power
 * failure.
 */
const THROW_AWAY_SETTINGS = {
  fsync: 'off',
  full_page_writes: 'off',
  max_connections: '500',
};

/** Log lines showing that no server will ever start on this data again. */
const DAMAGE = new RegExp(
  [
    'could not locate (?:a valid|required) checkpoint record',
    'invalid (?:primary )?checkpoint (?:record|link)',
    'could not find redo location',
    'incorrect checksum in control file',
    'control file (?:contains invalid|appears to be corrupt)',
    'could not open (?:control )?file "[^"]*(?:pg_control|pg_filenode.map)"[^:]*: ' +
      'No such',
    'is not a valid data directory',
    'database files are incompatible',
  ].join('|'),
);

/** What a server writes about itself to `postmaster.pid`. */
export interface Server {
  readonly pid: number;
  readonly port: number;
  /** `starting`, `ready` or `stopping`. */
  readonly status: string;
}

/**
 * Returns a server on this data folder that is running and ready: the existing one or a
 * new one.
 * @param port the port where the server's clients expect it
 * @throws RetryableError `EMBEDDED_START`
 * @throws PermanentError `EMBEDDED_IN_USE` if a server that is not visible on this system
 *   is running on the data, `EMBEDDED_DAMAGED` if no server will start on this data again
 */
export async function ensureServer(
  cluster: Cluster,
  signal: AbortSignal,
  port?: number,
): Promise<Server> {
  // Reuse the last port, so that clients of a killed server find the next one. Read it
  // before the wait, because a server that stops normally removes its pid file.
  const lastPort = port ?? readPidFile(cluster.dir)?.port;
  const deadlineMs = performance.now() + START_TIMEOUT_MS;
  const running = await waitForRunning(cluster, deadlineMs, signal);
  if (running !== undefined) return running;

  // The server inherits the lock and holds it as long as any of its processes is alive.
  using lock = await takeServerLock(cluster.home, signal);
  const restartsMs = readUsage(cluster.home)?.restartsMs;
  writeUsage(cluster.home, describeUsage(restartsMs));
  // Nothing is running on this data, so the pid file is stale. If it stayed, Postgres
  // would mistake a zombie, or another process with the same pid, for a running server.
  fs.rmSync(join(cluster.dir, 'postmaster.pid'), { force: true });

  const ports = [lastPort, undefined, undefined];
  const logStart = openLog(cluster.home);
  for (const wanted of ports) {
    const attempt = {
      port: await findFreePort(wanted),
      lockFd: lock.fd,
      logStart,
    };
    const server = await launch(cluster, attempt, deadlineMs, signal);
    if (server !== undefined) return server;
  }
  throw startError(
    cluster,
    logStart,
    `it stopped immediately, ${ports.length} times`,
  );
}

/**
 * Waits for the processes of an earlier start: a killed server's backends exit by
 * themselves, and a starting server becomes ready.
 * @returns undefined if no server process is left
 */
async function waitForRunning(
  cluster: Cluster,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<Server | undefined> {
  const { dir } = cluster;
  for (;;) {
    const pids = serverPids(dir);
    if (pids.length === 0) return undefined;
    const server = readPidFile(dir);
    if (server?.status === 'ready' && pids.includes(server.pid)) return server;
    if (performance.now() > deadlineMs) {
      const state =
        'processes from an earlier start are neither ready nor gone ' +
        `(${pids.join(', ')})`;
      throw startError(cluster, undefined, state);
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}

/** One attempt to start a server. */
interface Attempt {
  readonly port: number;
  /** The descriptor of the lock that the server inherits. */
  readonly lockFd: number;
  /** The byte offset in the log at which the lines of this start begin. */
  readonly logStart: number;
}

/**
 * Starts a server and waits until it is ready.
 * @returns undefined if the server exited immediately
 */
async function launch(
  cluster: Cluster,
  attempt: Attempt,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<Server | undefined> {
  const { dir } = cluster;
  const child = spawnServer(cluster, attempt);
  try {
    await once(child, 'spawn');
  } catch (error) {
    throw startError(cluster, attempt.logStart, errorCode(error), error);
  }
  while (child.exitCode === null && child.signalCode === null) {
    const server = findServer(dir);
    if (server?.pid === child.pid && server?.status === 'ready') return server;
    if (performance.now() > deadlineMs)
      throw startError(cluster, attempt.logStart, 'it was not ready in time');
    await sleep(POLL_MS, undefined, { signal });
  }
  return undefined;
}

function spawnServer(
  cluster: Cluster,
  { port, lockFd }: Attempt,
): ChildProcess {
  const { home, dir, account, binaries, isDurable } = cluster;
  const settings = {
    ...SERVER_SETTINGS,
    ...(isDurable ? {} : THROW_AWAY_SETTINGS),
    cluster_name: clusterName(dir),
  };
  const args = ['-D', HOST.currentFolder, '-p', String(port)];
  for (const [name, value] of Object.entries(settings))
    args.push('-c', `${name}=${value}`);

  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = fs.constants;
  const flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW;
  const log = fs.openSync(serverLogFile(home), flags, 0o600);
  const child = spawn(join(binaries.binDir, 'postgres'), args, {
    ...account,
    cwd: dir,
    env: SERVER_ENV,
    // The server gets its own session. That way Ctrl-C ends only us, and we stop the
    // server after our work is saved.
    detached: true,
    stdio: ['ignore', log, log, lockFd],
  });
  fs.closeSync(log);
  child.unref();
  return child;
}

/**
 * Creates the error for a failed start.
 * @param logStart undefined if this start wrote nothing to the log
 */
function startError(
  { home, dir }: Cluster,
  logStart: number | undefined,
  state: string,
  cause?: unknown,
): Error {
  const log = logStart === undefined ? '' : logSince(home, logStart);
  const lines = log.split('\n');
  const damage = lines.find((line) => DAMAGE.test(line));
  if (damage !== undefined) return damaged(home, damage, cause);

  const fatal = lines.findLast((line) => /\b(?:FATAL|PANIC):/.test(line));
  return new RetryableError(
    `Cannot start the embedded Postgres on ${dir}: ${fatal ?? state}; see ` +
      `${serverLogFile(home)}; if it never starts again, ` +
      'docs/guides/restore.md shows how to recover (load --all ' +
      '--take-over)',
    { code: 'EMBEDDED_START', meta: { dir, state, log }, cause },
  );
}

/**
 * Stops the server.
 * @returns false if the server is still running
 */
export async function stopServer({ home, dir }: Cluster): Promise<boolean> {
  for (const { signal, limitMs } of STOP_STAGES) {
    // A starting server has only one process until it has written its pid file.
    const pid = findServer(dir)?.pid ?? serverPids(dir)[0];
    if (pid === undefined) break;
    sendSignal(pid, signal);
    await waitForStop(dir, limitMs);
  }
  if (serverPids(dir).length > 0) return false;
  removeUsage(home);
  return true;
}

async function waitForStop(dir: string, limitMs: number): Promise<void> {
  const deadlineMs = performance.now() + limitMs;
  // Check this one process first, because checking all processes costs a hundred times as
  // much.
  while (findServer(dir) !== undefined || serverPids(dir).length > 0) {
    if (performance.now() > deadlineMs) return;
    await sleep(POLL_MS);
  }
}

/**
 * Finds a free port.
 * @param wanted the port to return if it is free
 */
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

/**
 * Returns a name that identifies this folder's processes by their command lines, which
 * any user may read. (Reading the working directory of another user's process requires a
 * capability that containers do not have.)
 */
function clusterName(dir: string): string {
  const { dev, ino } = fs.statSync(dir, { bigint: true });
  const digest = createHash('sha256').update(`${dev}:${ino}`).digest('hex');
  return `ledger_mirror_${digest.slice(0, 12)}`;
}

/**
 * Returns the pids of all processes of this folder's server, except zombies, which have
 * no command line.
 */
function serverPids(dir: string): number[] {
  return HOST.serverPids(clusterName(dir));
}

/**
 * Returns the visible server on this data folder, ready or not, no matter which process
 * started it.
 */
export function findServer(dir: string): Server | undefined {
  const server = readPidFile(dir);
  if (server === undefined) return undefined;
  return HOST.isServing(server.pid, clusterName(dir)) ? server : undefined;
}

/**
 * Whether the data folder refers to a server that is not visible on this system, because
 * it is dead or runs elsewhere.
 */
export function isServerUnseen(dir: string): boolean {
  if (readPidFile(dir) === undefined) return false;
  return serverPids(dir).length === 0;
}

/**
 * Reads `postmaster.pid`, which has one value per line: pid, folder, start time, port,
 * socket, address, shared memory, status.
 */
function readPidFile(dir: string): Server | undefined {
  let lines: string[];
  try {
    lines = fs.readFileSync(join(dir, 'postmaster.pid'), 'utf8').split('\n');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
  const pid = Number(lines[0]);
  const port = Number(lines[3]);
  const status = (lines[7] ?? '').trim();
  return pid > 0 && port > 0 ? { pid, port, status } : undefined;
}

/** Sends a signal to a process that may already have ended. */
function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (errorCode(error) !== 'ESRCH') throw error;
  }
}
