/**
 * Detects whether a data folder is in use by a server that this process cannot see, in
 * another container on the same volume or on another machine that mounts it. A second
 * server would destroy live data, so such a folder is refused and left unchanged.
 *
 * A record next to the data names the kernel, the PID namespace and the host on which the
 * server was started. If the kernel and namespace are our own, `/proc` shows all
 * processes. For any other record there are three signs that a server is in use, none of
 * which requires seeing a process:
 *
 * 1. `holders.lock`: a command over there uses the server.
 * 2. `server.lock`: the server itself is running, even if all its commands were killed.
 * 3. The record's heartbeat: a machine over there writes it every two seconds. It is
 *    watched only if the record is from another kernel, where the locks may have no
 *    effect.
 */
import * as fs from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../concurrency/timeouts.ts';
import { PermanentError, errorCode } from '../errors/errors.ts';
import { HOST } from './host.ts';
import {
  type DescriptorLock,
  takeDescriptorLock,
  takeRecordLock,
} from './locks.ts';

/**
 * How long to watch for a heartbeat. A keeper beats every two seconds, so this is several
 * beats.
 */
const HEARTBEAT_WATCH_MS = 8_000;
const HEARTBEAT_POLL_MS = 250;
const SERVER_LOCK_WAIT_MS = 2_000;

/** Where the server of a data folder was started. */
export interface UsageRecord {
  /** Identifies the running kernel: `/proc/sys/kernel/random/boot_id`. */
  readonly bootId: string;
  /** Identifies the PID namespace within that kernel, such as `pid:[4026531836]`. */
  readonly pidNamespace: string;
  /** Name of the host or container, for messages. */
  readonly host: string;
  /** When the server was started, as RFC 3339, for messages. */
  readonly startedAt: string;
  /** When the server was restarted after crashes, in milliseconds since 1970. */
  readonly restartsMs: readonly number[];
}

/** Creates the record for a server that is started here and now. */
export function describeUsage(restartsMs: readonly number[] = []): UsageRecord {
  return {
    bootId: HOST.bootId(),
    pidNamespace: HOST.pidNamespace(),
    host: hostname(),
    startedAt: new Date().toISOString(),
    restartsMs,
  };
}

/**
 * Reads the record.
 * @returns undefined if there is no record, or it cannot be parsed
 */
export function readUsage(home: string): UsageRecord | undefined {
  try {
    const text = fs.readFileSync(recordFile(home), 'utf8');
    const record = JSON.parse(text) as Partial<UsageRecord>;
    return {
      bootId: record.bootId ?? '',
      pidNamespace: record.pidNamespace ?? '',
      host: record.host ?? 'an unknown host',
      startedAt: record.startedAt ?? 'an unknown time',
      restartsMs: record.restartsMs ?? [],
    };
  } catch (error) {
    if (errorCode(error) === 'ENOENT' || error instanceof SyntaxError)
      return undefined;
    throw error;
  }
}

/** Replaces the record atomically, so that no reader sees a partial one. */
export function writeUsage(home: string, record: UsageRecord): void {
  const staging = `${recordFile(home)}.new`;
  fs.rmSync(staging, { force: true });
  // An exclusive open does not follow links.
  fs.writeFileSync(staging, `${JSON.stringify(record)}\n`, {
    flag: 'wx',
    mode: 0o600,
  });
  fs.renameSync(staging, recordFile(home));
}

/** Removes the record, because the server has stopped normally and nothing is in use. */
export function removeUsage(home: string): void {
  fs.rmSync(recordFile(home), { force: true });
}

/** Shows other machines that this one still uses the data. */
export function beat(home: string): void {
  const record = readUsage(home);
  if (record === undefined || !isOurs(record)) return;
  const now = new Date();
  fs.utimesSync(recordFile(home), now, now);
}

/**
 * Whether `/proc` shows every process that the record refers to. A namespace's number may
 * be reused after the namespace ends, but by then all its processes have ended, so the
 * result is still right.
 */
export function isOurs(record: UsageRecord): boolean {
  const own = describeUsage();
  return (
    record.bootId === own.bootId && record.pidNamespace === own.pidNamespace
  );
}

/**
 * Refuses a data folder that is in use by a server that this process cannot see. The
 * caller must hold `turn.lock` (see postgres.ts), and must not hold `holdersLock` yet.
 * @param isServerUnseen whether the data folder refers to a server that `/proc` does not
 *   show
 * @throws PermanentError `EMBEDDED_IN_USE`
 */
export async function refuseForeignUse(
  home: string,
  holdersLock: string,
  isServerUnseen: boolean,
  signal: AbortSignal,
): Promise<void> {
  const record = readUsage(home);
  if (record !== undefined && isOurs(record)) return;
  // If the data refers to a server but there is no record, it may come from a release
  // that wrote none, or from a start that was killed before writing one.
  if (record === undefined && !isServerUnseen) return;

  const holders = takeRecordLock(holdersLock, 'exclusive');
  if (holders === undefined) throw inUse(home, 'a command there holds it');
  holders[Symbol.dispose]();

  const server = await takeServerLock(home, signal);
  server[Symbol.dispose]();

  const isOtherKernel =
    record !== undefined && record.bootId !== describeUsage().bootId;
  if (isOtherKernel && (await hasHeartbeat(home, signal)))
    throw inUse(home, 'another machine keeps saying so');
}

/**
 * Takes the lock that a running server holds. When a process ends, its command line
 * disappears slightly before its files are closed, so the attempt is retried briefly.
 * @throws PermanentError `EMBEDDED_IN_USE` if a server still holds the lock
 */
export async function takeServerLock(
  home: string,
  signal: AbortSignal,
): Promise<DescriptorLock> {
  const attempt = async (): Promise<DescriptorLock | undefined> =>
    takeDescriptorLock(join(home, 'server.lock'));
  const limits = { waitMs: SERVER_LOCK_WAIT_MS, signal };
  return waitFor(attempt, limits, () => inUse(home, 'its server runs'));
}

export function inUse(home: string, evidence: string): PermanentError {
  const record = readUsage(home);
  const place =
    record === undefined ? '' : ` on ${record.host} since ${record.startedAt}`;
  return new PermanentError(
    `Cannot use the embedded Postgres in ${home}: it is in use${place}, by a ` +
      `server that this process cannot see (${evidence}); run the command there ` +
      '(docker exec, docker compose exec, kubectl exec), or set DATABASE_URL',
    { code: 'EMBEDDED_IN_USE', meta: { home, evidence, ...record } },
  );
}

/**
 * Whether the record's heartbeat is still going. Watches for a change instead of
 * comparing times, because the other machine's clock may differ.
 */
async function hasHeartbeat(
  home: string,
  signal: AbortSignal,
): Promise<boolean> {
  const first = lastBeat(home);
  const deadlineMs = performance.now() + HEARTBEAT_WATCH_MS;
  while (performance.now() < deadlineMs) {
    await sleep(HEARTBEAT_POLL_MS, undefined, { signal });
    const latest = lastBeat(home);
    if (latest === undefined) return false;
    if (latest !== first) return true;
  }
  return false;
}

/**
 * Identifies the last heartbeat. It reopens the record each time, which makes a network
 * file system fetch the record's latest modification time from its server.
 * @returns undefined if the record is gone, because the other machine stopped normally
 */
function lastBeat(home: string): string | undefined {
  let fd: number | undefined;
  try {
    fd = fs.openSync(recordFile(home), 'r');
    const { mtimeMs, ino } = fs.fstatSync(fd);
    return `${ino}:${mtimeMs}`;
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
    return undefined;
  } finally {
    if (fd !== undefined) fs.closeSync(fd);
  }
}

function recordFile(home: string): string {
  return join(home, 'running.json');
}
