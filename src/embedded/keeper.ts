/**
 * Watches the server for as long as a command uses it. If the server crashes in the
 * meantime (killed, or out of memory), the first command that notices restarts it on its
 * old port.
 *
 * A server that keeps crashing is restarted with increasing delays, at most
 * `RESTARTS_MAX` times in ten minutes. All commands on one data folder share this count,
 * which is stored in the record next to the data.
 */
import * as fs from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../logging/log.ts';
import type { Cluster } from './data-folder.ts';
import { ensureServer, findServer } from './server.ts';
import {
  beat,
  describeUsage,
  inUse,
  isOurs,
  readUsage,
  writeUsage,
} from './usage.ts';

const LOOK_EVERY_MS = 2_000;
const RESTARTS_MAX = 5;
const RESTARTS_WINDOW_MS = 10 * 60_000;

/** The log levels that the embedded server uses. */
export type ServerLog = Pick<Log, 'info' | 'warn'>;

export interface KeeperOptions {
  readonly cluster: Cluster;
  /** The port where the server's clients expect it. */
  readonly port: number;
  readonly log: ServerLog;
  /** Runs `work` while no other command starts or stops the server. */
  readonly inTurn: (work: () => Promise<void>) => Promise<void>;
  /** Stops the keeper. */
  readonly signal: AbortSignal;
}

/** Runs until the signal aborts. It does not keep the process alive. */
export async function keepServer(options: KeeperOptions): Promise<void> {
  const { cluster, log, inTurn, signal } = options;
  const { home, dir } = cluster;
  let isPauseLogged = false;
  for (;;) {
    await sleep(LOOK_EVERY_MS, undefined, { signal, ref: false }).catch(
      () => undefined,
    );
    if (signal.aborted) return;
    if (!fs.existsSync(dir)) continue;
    beat(home);
    if (findServer(dir) !== undefined) continue;

    const waitMs = restartWaitMs(readUsage(home)?.restartsMs ?? [], Date.now());
    if (waitMs > 0) {
      if (!isPauseLogged)
        log.warn({ waitMs, dir }, 'Embedded Postgres keeps stopping; waiting');
      isPauseLogged = true;
      continue;
    }
    isPauseLogged = false;
    try {
      await inTurn(() => restart(options));
    } catch (error) {
      if (!signal.aborted)
        log.warn(
          { err: error, dir },
          'Embedded Postgres could not be started again',
        );
    }
  }
}

/**
 * Computes how long to wait before the next restart. After one to four restarts in the
 * last ten minutes, the wait is 2, 4, 8 or 16 s. After five or more, the wait ends when
 * all but the last four are more than ten minutes old.
 * @param restartsMs when the server was restarted, oldest first
 */
export function restartWaitMs(
  restartsMs: readonly number[],
  nowMs: number,
): number {
  const recentMs = recentRestarts(restartsMs, nowMs);
  const firstMs = recentMs.at(-RESTARTS_MAX);
  if (firstMs !== undefined) return firstMs + RESTARTS_WINDOW_MS - nowMs;

  const lastMs = recentMs.at(-1);
  if (lastMs === undefined) return 0;
  const pauseMs = LOOK_EVERY_MS * 2 ** (recentMs.length - 1);
  return Math.max(0, lastMs + pauseMs - nowMs);
}

/**
 * Returns the restarts within the window. A time in the future means that the clock was
 * set back, and is ignored.
 */
function recentRestarts(
  restartsMs: readonly number[],
  nowMs: number,
): number[] {
  return restartsMs.filter(
    (thenMs) => thenMs <= nowMs && nowMs - thenMs < RESTARTS_WINDOW_MS,
  );
}

async function restart({
  cluster,
  port,
  log,
  signal,
}: KeeperOptions): Promise<void> {
  const { home, dir } = cluster;
  const usage = readUsage(home);
  if (usage !== undefined && !isOurs(usage))
    throw inUse(home, 'it was taken over from here');

  // Another command may have restarted the server while this one was waiting for its
  // turn.
  if (findServer(dir) === undefined) {
    const nowMs = Date.now();
    const restartsMs = recentRestarts(usage?.restartsMs ?? [], nowMs);
    writeUsage(home, describeUsage([...restartsMs, nowMs]));
  }
  const server = await ensureServer(cluster, signal, port);
  const facts = {
    serverPid: server.pid,
    port: server.port,
    oldPort: port,
    dir,
  };
  if (server.port === port)
    log.warn(facts, 'Embedded Postgres had stopped, and is running again');
  else
    log.warn(
      facts,
      'Embedded Postgres had stopped, and now runs on another port: ' +
        'restart this command',
    );
}
