/**
 * A lease is the right to sync a list or to export a ledger. It is renewed while the work
 * runs. The work is aborted once the lease might have expired: the deadline is counted on
 * this process's monotonic clock, from just before each renewal was sent.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { FencedError, RetryableError } from '../errors/errors.ts';

/**
 * How long a lease lasts without a renewal. It is long enough that a process that is
 * starved of CPU for a while keeps its leases. A killed process loses its connection, and
 * a successor takes over ten seconds after the last renewal (`mirror.is_leased`).
 */
export const LEASE_MS = 60_000;
/**
 * How long after its last heartbeat a run counts as dead; a live process sends one every
 * three seconds.
 */
export const RUN_SILENT_MS = 10_000;
/**
 * How long after its last heartbeat a worker counts as dead, wherever workers are
 * counted.
 */
export const WORKER_SILENT_MS = 10_000;

export interface KeptLease extends AsyncDisposable {
  /**
   * Aborts when the lease is lost or about to expire; its reason is the error to throw.
   */
  readonly signal: AbortSignal;
  /**
   * Checks that the lease is still held.
   * @throws FencedError if another worker has the lease, or RetryableError `LEASE_LOST`
   *   if it may have expired
   */
  readonly check: () => void;
}

export interface LeaseHandle {
  /** What the leased work is called in messages, such as "the sync of parties". */
  readonly what: string;
  /** When the request that took the lease was sent (`performance.now()`). */
  readonly takenAtMs: number;
  readonly renew: () => Promise<void>;
  readonly release: () => Promise<void>;
}

export const LEASE_TIMES = {
  leaseMs: LEASE_MS,
  renewEveryMs: 2_500,
  /**
   * The work stops this long before the lease could expire, so that a request that was
   * already sent ends in time.
   */
  marginMs: 2_500,
};

/** Keeps renewing a lease until the result is disposed of, which releases the lease. */
export function keepLease(handle: LeaseHandle, times = LEASE_TIMES): KeptLease {
  const lost = new AbortController();
  const stopped = new AbortController();
  const validMs = times.leaseMs - times.marginMs;
  let deadlineMs = handle.takenAtMs + validMs;

  function check(): void {
    if (!lost.signal.aborted && performance.now() > deadlineMs)
      lost.abort(leaseLost(handle.what));
    lost.signal.throwIfAborted();
  }

  async function renewUntilStopped(): Promise<void> {
    while (true) {
      await sleep(times.renewEveryMs, undefined, {
        signal: stopped.signal,
        ref: false,
      }).catch(() => undefined);
      if (stopped.signal.aborted || lost.signal.aborted) return;
      const sentAtMs = performance.now();
      try {
        await handle.renew();
        deadlineMs = sentAtMs + validMs;
      } catch (error) {
        // The database may be reachable again before the deadline, so keep trying until
        // then. If another worker owns the lease, further attempts are pointless.
        if (error instanceof FencedError) lost.abort(error);
        else if (performance.now() > deadlineMs)
          lost.abort(leaseLost(handle.what, error));
      }
    }
  }

  const renewing = renewUntilStopped();
  return {
    signal: lost.signal,
    check,
    async [Symbol.asyncDispose]() {
      stopped.abort();
      await renewing;
      // A lease that cannot be released expires on its own.
      if (!lost.signal.aborted) await handle.release().catch(() => undefined);
    },
  };
}

function leaseLost(what: string, cause?: unknown): RetryableError {
  const message =
    `Cannot continue ${what}: its lease could not be renewed in time; ` +
    'it is tried again';
  return new RetryableError(message, { code: 'LEASE_LOST', cause });
}
