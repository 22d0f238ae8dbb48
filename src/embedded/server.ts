/**
 * The server on a data folder: started, stopped, and recognised from the outside, whoever started it. Callers hold the
 * folder's lock (see postgres.ts) around every change.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RetryableError, errorCode } from '../errors/errors.ts';
import { SERVER_ENV } from './binaries.ts';
import { type Cluster, HERE } from './data-folder.ts';

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

/** What a server writes about itself. */
interface Server {
  readonly pid: number;
  readonly port: number;
  /** `starting`, `ready` or `stopping`. */
  readonly status: string;
}

/**
 * The server on this data folder, running and ready: the one found, or a new one.
 * @param port where its users look for it
 * @throws RetryableError `EMBEDDED_START`
 */
export async function ensureServer(
  cluster: Cluster,
  signal: AbortSignal,
  port?: number,
): Promise<Server> {
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
async function launch(
  cluster: Cluster,
  port: number,
  deadlineMs: number,
  signal: AbortSignal,
) {
  const { dir, account, binaries, isDurable } = cluster;
  const file = logFile(cluster);
  if (fs.existsSync(file)) fs.renameSync(file, `${file}.old`);
  const flags =
    fs.constants.O_WRONLY |
    fs.constants.O_APPEND |
    fs.constants.O_CREAT |
    fs.constants.O_NOFOLLOW;
  const log = fs.openSync(file, flags, 0o600);
  const durability = isDurable ? {} : { fsync: 'off', full_page_writes: 'off' };
  const settings = { ...SERVER_SETTINGS, ...durability, cluster_name: clusterName(dir) };
  const options = Object.entries(settings).flatMap(([name, value]) => [
    '-c',
    `${name}=${value}`,
  ]);
  const child = spawn(
    join(binaries.binDir, 'postgres'),
    ['-D', HERE, '-p', String(port), ...options],
    {
      ...account,
      cwd: dir,
      env: SERVER_ENV,
      // A session of its own: Ctrl-C ends us, and we end the server when our work is put away.
      detached: true,
      stdio: ['ignore', log, log],
    },
  );
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
    if (performance.now() > deadlineMs)
      throw startError(cluster, 'it was not ready in time');
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
  const log = fs.existsSync(file)
    ? fs.readFileSync(file, 'utf8').slice(-LOG_TAIL_CHARS)
    : '';
  const fatal = log.split('\n').findLast((line) => /\b(?:FATAL|PANIC):/.test(line));
  const message = `Cannot start the embedded Postgres on ${dir}: ${fatal ?? state}; see ${file}`;
  return new RetryableError(message, {
    code: 'EMBEDDED_START',
    meta: { dir, state, log },
    cause,
  });
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

/**
 * Marks this folder's processes in their command lines, which any user may read (the working
 * directory of another user's process needs a capability that containers do not have).
 */
function clusterName(dir: string): string {
  const { dev, ino } = fs.statSync(dir, { bigint: true });
  return `ledger_mirror_${createHash('sha256').update(`${dev}:${ino}`).digest('hex').slice(0, 12)}`;
}

/** Pids of every process of this folder's server. A zombie has no command line, so it is not counted. */
function serverPids(dir: string): number[] {
  const name = clusterName(dir);
  return fs
    .readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry) && isServing(entry, name))
    .map(Number);
}

/** The server that runs on this data folder, whoever started it, ready or not. */
export function findServer(dir: string): Server | undefined {
  const file = readPidFile(dir);
  return file !== undefined && isServing(String(file.pid), clusterName(dir))
    ? file
    : undefined;
}

function isServing(pid: string, name: string): boolean {
  try {
    return (
      fs.readFileSync(`/proc/${pid}/comm`, 'utf8') === 'postgres\n' &&
      fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(name)
    );
  } catch {
    return false; // It ended in between.
  }
}

/** `postmaster.pid`: pid, folder, start, port, socket, address, shared memory, status, a line each. */
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
  return pid > 0 && port > 0 ? { pid, port, status: (lines[7] ?? '').trim() } : undefined;
}

/** To a process that may have ended already. */
function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (errorCode(error) !== 'ESRCH') throw error;
  }
}
