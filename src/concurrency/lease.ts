/**
 * The right to sync a list, or to export a ledger. Kept alive while work goes on, which is stopped where it cannot be
 * sure any more to hold it: the deadline is counted on this process's monotonic clock, from before each renewal was sent.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { FencedError, RetryableError } from '../errors/errors.ts';

/**
 * A process that gets no time keeps its leases for this long. One that was killed loses its connection, and its
 * successor takes over ten seconds after the last renewal (`mirror.is_leased`).
 */
export const LEASE_MS = 60_000;

export interface KeptLease extends AsyncDisposable {
  /** Aborts with the reason when the lease is lost or about to run out. */
  readonly signal: AbortSignal;
  /** @throws FencedError | RetryableError `LEASE_LOST` */
  readonly check: () => void;
}

export interface LeaseHandle {
  /** For messages. */
  readonly what: string;
  /** When the request that took the lease was sent (`performance.now()`). */
  readonly takenAtMs: number;
  readonly renew: () => Promise<void>;
  readonly release: () => Promise<void>;
}

export const LEASE_TIMES = {
  leaseMs: LEASE_MS,
  renewEveryMs: 2_500,
  /** Work stops this long before the lease can run out: enough for a request that is under way. */
  marginMs: 2_500,
};

/** Renews until it is disposed, and then gives the lease back. */
export function keepLease(handle: LeaseHandle, times = LEASE_TIMES): KeptLease {
  const lost = new AbortController();
  const stopped = new AbortController();
  const heldMs = times.leaseMs - times.marginMs;
  let deadlineMs = handle.takenAtMs + heldMs;

  function check(): void {
    if (!lost.signal.aborted && performance.now() > deadlineMs)
      lost.abort(runOut(handle.what));
    lost.signal.throwIfAborted();
  }

  async function heartbeat(): Promise<void> {
    for (;;) {
      await sleep(times.renewEveryMs, undefined, {
        signal: stopped.signal,
        ref: false,
      }).catch(() => undefined);
      if (stopped.signal.aborted || lost.signal.aborted) return;
      const sentAtMs = performance.now();
      try {
        await handle.renew();
        deadlineMs = sentAtMs + heldMs;
      } catch (error) {
        // The database may come back before the deadline; another owner does not go away.
        if (error instanceof FencedError) lost.abort(error);
        else if (performance.now() > deadlineMs) lost.abort(runOut(handle.what, error));
      }
    }
  }

  const beating = heartbeat();
  return {
    signal: lost.signal,
    check,
    async [Symbol.asyncDispose]() {
      stopped.abort();
      await beating;
      // Where it cannot be given back, it runs out by itself.
      if (!lost.signal.aborted) await handle.release().catch(() => undefined);
    },
  };
}

function runOut(what: string, cause?: unknown): RetryableError {
  const message = `Cannot go on with ${what}: its lease could not be renewed in time; it is tried again`;
  return new RetryableError(message, { code: 'LEASE_LOST', cause });
}
