/** A service that is not up yet gets a minute; then the command says which one and ends in 75. */
import pRetry from 'p-retry';
import { UnreachableError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';

const REACHABLE_MAX_MS = 60_000;
const RETRY_MIN_MS = 250;
const RETRY_MAX_MS = 5_000;

/**
 * Calls `open` until it succeeds, for a minute at most; only errors that say "not reachable" are retried.
 * @throws UnreachableError the last one, after a minute
 */
export async function untilReachable<Result>(
  what: string,
  log: Log,
  signal: AbortSignal,
  open: () => Promise<Result>,
): Promise<Result> {
  return pRetry(open, {
    retries: Math.ceil(REACHABLE_MAX_MS / RETRY_MIN_MS),
    minTimeout: RETRY_MIN_MS,
    maxTimeout: RETRY_MAX_MS,
    maxRetryTime: REACHABLE_MAX_MS,
    randomize: true,
    signal,
    shouldRetry: ({ error }) => error instanceof UnreachableError,
    onFailedAttempt: ({ error, attemptNumber, retryDelay }) => {
      if (error instanceof UnreachableError) {
        log.warn({ err: error, what, attempt: attemptNumber, delayMs: retryDelay }, 'Not reachable yet');
      }
    },
  });
}
