/**
 * Looks after a server for as long as somebody uses it: one that died without its holder (killed, out of
 * memory) is started again. What dies again and again is left alone, and said.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../core/log.ts';

interface KeptServer {
  isGone(): boolean;
  /** Bounds what it writes beside its data; called at every look. */
  boundLog(): void;
  /** Starts it where its users look for it, or finds that another process has. */
  restart(signal: AbortSignal): Promise<void>;
}

const LIMITS = {
  lookEveryMs: 2_000,
  /** So many restarts, successful or not, within `windowMs`; after that the server is left alone. */
  restartsMax: 5,
  windowMs: 10 * 60_000,
};

/** Works until it is disposed of, which waits for a restart under way; it keeps no process alive by itself. */
export function keepServer(server: KeptServer, log: Pick<Log, 'warn'>, limits = LIMITS): AsyncDisposable {
  const stop = new AbortController();
  const keeping = keep(server, log, limits, stop.signal);
  return {
    [Symbol.asyncDispose]: () => {
      stop.abort();
      return keeping;
    },
  };
}

async function keep(
  server: KeptServer,
  log: Pick<Log, 'warn'>,
  { lookEveryMs, restartsMax, windowMs }: typeof LIMITS,
  signal: AbortSignal,
): Promise<void> {
  let restartsMs: number[] = [];
  for (;;) {
    await sleep(lookEveryMs, undefined, { signal, ref: false }).catch(() => undefined);
    if (signal.aborted) return;
    server.boundLog();
    if (!server.isGone()) continue;
    const nowMs = performance.now();
    restartsMs = restartsMs.filter((thenMs) => nowMs - thenMs < windowMs);
    if (restartsMs.length >= restartsMax) {
      log.warn({ restarts: restartsMs.length }, 'Embedded Postgres keeps dying; left alone');
      return;
    }
    restartsMs.push(nowMs);
    await server.restart(signal).catch((error: unknown) => {
      if (!signal.aborted) log.warn({ err: error }, 'Embedded Postgres could not be started again');
    });
  }
}
