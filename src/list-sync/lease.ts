/**
 * Keeps a list's lease while it is synced. Each commit checks the lease itself; this only renews it, and stops
 * the sync early where another worker has taken over.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { FencedError, RetryableError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { ListName } from './ports.ts';
import type { ListSession, ListStore } from './store/list-store.ts';

const RENEW_EVERY_MS = 3_000;
/** Longer than a lease lives, so that a dead worker's lease runs out meanwhile. */
const WAIT_FOR_LEASE_MS = 13_000;
const ASK_AGAIN_MS = 500;

export interface LeaseWait {
  readonly waitMs: number;
  readonly againMs: number;
}

/**
 * Opens the sync, waiting for the lease of a worker that may be dead.
 * @throws RetryableError `LIST_BUSY` where the other worker is alive
 */
export async function openSession(
  store: Pick<ListStore, 'open'>,
  list: ListName,
  runId: string,
  signal: AbortSignal,
  { waitMs, againMs }: LeaseWait = { waitMs: WAIT_FOR_LEASE_MS, againMs: ASK_AGAIN_MS },
): Promise<ListSession> {
  const startedMs = performance.now();
  for (;;) {
    signal.throwIfAborted();
    const session = await store.open(list, runId, signal);
    if (session !== undefined) return session;
    if (performance.now() - startedMs >= waitMs) {
      throw new RetryableError(`Cannot sync ${list}: another worker is at it; wait until it has ended`, {
        code: 'LIST_BUSY',
        meta: { list },
        retryAfterMs: WAIT_FOR_LEASE_MS,
      });
    }
    await sleep(againMs, undefined, { signal });
  }
}

/** Renews until disposed; its signal aborts with FencedError once the lease is lost. */
export function keepLease(
  session: Pick<ListSession, 'renew'>,
  log: Log,
): AsyncDisposable & { readonly signal: AbortSignal } {
  const lost = new AbortController();
  const stop = new AbortController();
  const renew = async (): Promise<void> => {
    for (;;) {
      await sleep(RENEW_EVERY_MS, undefined, { signal: stop.signal }).catch(() => undefined);
      if (stop.signal.aborted) return;
      try {
        await session.renew();
      } catch (error) {
        if (error instanceof FencedError) return lost.abort(error);
        // The sync meets the same database and reports the error; the lease may still be ours.
        log.debug({ err: error }, 'Lease could not be renewed');
      }
    }
  };
  const renewing = renew();
  return {
    signal: lost.signal,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await renewing;
    },
  };
}
