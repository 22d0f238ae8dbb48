/**
 * Looks after a server for as long as somebody uses it: one that died without its holder (killed, out of
 * memory) is started again. What dies again and again is left alone, and said.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../core/log.ts';

export interface KeptServer {
  isGone(): boolean;
  /** Bounds what it writes beside its data; called at every look. */
  boundLog(): void;
  /** Starts it where its users look for it, or finds that another process has. */
  restart(signal: AbortSignal): Promise<void>;
}

export interface KeeperLimits {
  readonly lookEveryMs: number;
  /** So many restarts, successful or not, within `windowMs`; after that the server is left alone. */
  readonly restartsMax: number;
  readonly windowMs: number;
}

const LIMITS: KeeperLimits = { lookEveryMs: 2_000, restartsMax: 5, windowMs: 10 * 60_000 };

/** Works until it is disposed; it keeps no process alive by itself. */
export class ServerKeeper implements AsyncDisposable {
  readonly #stop = new AbortController();
  readonly #limits: KeeperLimits;
  readonly #log: Pick<Log, 'warn'>;
  readonly #keeping: Promise<void>;

  constructor(server: KeptServer, log: Pick<Log, 'warn'>, limits: KeeperLimits = LIMITS) {
    this.#limits = limits;
    this.#log = log;
    this.#keeping = this.#keep(server);
  }

  async #keep(server: KeptServer): Promise<void> {
    const { signal } = this.#stop;
    let restartsMs: number[] = [];
    for (;;) {
      await sleep(this.#limits.lookEveryMs, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      server.boundLog();
      if (!server.isGone()) continue;
      const nowMs = performance.now();
      restartsMs = restartsMs.filter((thenMs) => nowMs - thenMs < this.#limits.windowMs);
      if (restartsMs.length >= this.#limits.restartsMax) {
        this.#log.warn({ restarts: restartsMs.length }, 'Embedded Postgres keeps dying; left alone');
        return;
      }
      restartsMs.push(nowMs);
      await this.#restart(server);
    }
  }

  async #restart(server: KeptServer): Promise<void> {
    try {
      await server.restart(this.#stop.signal);
    } catch (error) {
      if (!this.#stop.signal.aborted) {
        this.#log.warn({ err: error }, 'Embedded Postgres could not be started again');
      }
    }
  }

  /** Waits for a restart that is under way. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#keeping;
  }
}
