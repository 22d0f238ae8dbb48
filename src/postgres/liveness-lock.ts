/**
 * Lets other processes see that this one is alive, by holding an advisory lock on a
 * dedicated connection. A process that gets no CPU time stays connected; a killed one
 * does not.
 */
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { execute } from './run-statement.ts';
import { openSession, type Session } from './session.ts';
import { statement } from './statement.ts';

const ACTION = 'show that this process is alive';
/**
 * The class of the advisory lock. `mirror.is_leased`, which looks for the lock, uses the
 * same number.
 */
const LOCK_CLASS = 1_819_110_756;
/** How long to wait before a lost connection is replaced. */
const RECONNECT_MS = 1_000;

export class LivenessLock implements AsyncDisposable {
  /** Identifies this process in the leases that it takes. */
  readonly holder = randomInt(1, 2 ** 31 - 1);
  readonly #pool: Pool;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(pool: Pool) {
    this.#pool = pool;
    this.#running = this.#run();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    // An unreachable database must not keep the process from exiting.
    await Promise.race([
      this.#running,
      sleep(RECONNECT_MS, undefined, { ref: false }),
    ]);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      let session: Session | undefined;
      try {
        session = await openSession(this.#pool, ACTION);
        const ended = session.ended(signal);
        // The connection may break, or be stopped, while the lock is being taken.
        ended.catch(() => undefined);
        const lock = statement({ lock: 'void' })`
          select pg_advisory_lock(${LOCK_CLASS}::int, ${this.holder}::int) as lock`;
        await execute(session, ACTION, lock);
        await ended;
      } catch {
        // Other work of this process uses the same database and reports its problems.
      }
      session?.release(true);
      await sleep(RECONNECT_MS, undefined, { signal, ref: false }).catch(
        () => undefined,
      );
    }
  }
}
