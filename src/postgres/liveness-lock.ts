/**
 * By which others see that this process is there: a lock of its own on a connection of its own. A process that gets no
 * time stays connected; one that was killed does not.
 */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool, PoolClient } from 'pg';

/** As `mirror.is_leased` has it. */
const LOCK_CLASS = 1_819_110_756;
const AGAIN_MS = 1_000;

export class LivenessLock implements AsyncDisposable {
  /** Names this process in the leases that it takes. */
  readonly holder = randomInt(1, 2 ** 31 - 1);
  readonly #pool: Pool;
  readonly #stop = new AbortController();
  readonly #kept: Promise<void>;

  constructor(pool: Pool) {
    this.#pool = pool;
    this.#kept = this.#keep();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    // A database that is away keeps no process from ending.
    await Promise.race([this.#kept, sleep(AGAIN_MS, undefined, { ref: false })]);
  }

  async #keep(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let client: PoolClient | undefined;
      try {
        client = await this.#pool.connect();
        const ended = once(client, 'end', { signal });
        // It may break or be stopped while the lock is taken.
        ended.catch(() => undefined);
        await client.query('select pg_advisory_lock($1::int, $2::int)', [
          LOCK_CLASS,
          this.holder,
        ]);
        await ended;
      } catch {
        // The work itself meets the same database, and says what is wrong with it.
      }
      client?.release(true);
      await sleep(AGAIN_MS, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }
}
