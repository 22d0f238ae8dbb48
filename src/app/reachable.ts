/** A service that is not up yet gets a minute; then the command says which one and ends in 75. */
import pRetry from 'p-retry';
import { errorLine, UnreachableError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';

/** For commands that wait for their services. */
const REACHABLE_MAX_MS = 60_000;
const RETRY_MIN_MS = 250;
const RETRY_MAX_MS = 5_000;

export interface Patience {
  readonly log: Log;
  readonly signal: AbortSignal;
  /** How long a service may stay away. Default: a minute. */
  readonly reachableMaxMs?: number;
}

/**
 * Calls `open` until it succeeds, as long as the patience lasts; only errors that say "not reachable" are retried.
 * @throws UnreachableError the last one, once the patience is at its end
 */
export async function untilReachable<Result>(
  what: string,
  { log, signal, reachableMaxMs = REACHABLE_MAX_MS }: Patience,
  open: () => Promise<Result>,
): Promise<Result> {
  return pRetry(open, {
    retries: Math.ceil(reachableMaxMs / RETRY_MIN_MS),
    minTimeout: RETRY_MIN_MS,
    maxTimeout: RETRY_MAX_MS,
    maxRetryTime: reachableMaxMs,
    randomize: true,
    signal,
    shouldRetry: ({ error }) => error instanceof UnreachableError,
    onFailedAttempt: ({ error, attemptNumber, retryDelay }) => {
      if (!(error instanceof UnreachableError)) return;
      const reason = errorLine(error);
      log.warn({ what, reason, attempt: attemptNumber, delayMs: retryDelay }, 'Not reachable yet');
    },
  });
}
