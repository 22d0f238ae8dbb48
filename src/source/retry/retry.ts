/** Tries a call again as the policy says, within limits of attempts and time. */
import pRetry from 'p-retry';
import { errorCode, errorLine, PermanentError, RetryableError, UnreachableError } from '../../core/errors.ts';
import type { Clock } from '../ports.ts';
import { WAIT_MAX_MS } from '../rate-limit.ts';
import { delayMs, RETRY_RULES } from './retry-policy.ts';

export interface RetryLimits {
  readonly attemptsMax: number;
  /** From the first attempt; a wait that the source asked for counts too. */
  readonly elapsedMaxMs: number;
  /** Where no connection can be opened, however many attempts that takes. */
  readonly unreachableMaxMs: number;
  /** Only failures that cost the source nothing: a query that ran must not run again unasked. */
  readonly onlyCheap: boolean;
}

export const LIST_RETRIES: RetryLimits = {
  attemptsMax: 5,
  elapsedMaxMs: 10 * 60_000,
  unreachableMaxMs: 60_000,
  onlyCheap: false,
};
export const EXPORT_RETRIES: RetryLimits = { ...LIST_RETRIES, onlyCheap: true };
/** Where no connection can be opened, time is the limit; this only bounds the loop. */
const UNREACHABLE_ATTEMPTS_MAX = 60;

export interface RetryDeps {
  readonly clock: Clock;
  /** Told before each wait. */
  readonly onRetry: (error: Error, attempt: number, waitMs: number) => void;
}

/**
 * @param work gets the number of the attempt, from 1
 * @throws the last attempt's error, with the number of attempts and the first failure in `meta`; a
 *   RetryableError keeps `retryAfterMs`, so that the job can be put off where the wait is too long
 */
export async function withRetries<Result>(
  limits: RetryLimits,
  deps: RetryDeps,
  signal: AbortSignal,
  work: (attempt: number) => Promise<Result>,
): Promise<Result> {
  const { clock } = deps;
  const startMs = clock.nowMs();
  let attempts = 0;
  let first: unknown;
  const shouldRetry = async (error: Error, failed: number): Promise<boolean> => {
    first ??= error;
    const rule = RETRY_RULES[errorCode(error)];
    if (!(error instanceof RetryableError) || rule === undefined) return false;
    if (limits.onlyCheap && !rule.isCheap) return false;
    if (!(error instanceof UnreachableError) && failed >= limits.attemptsMax) return false;
    const waitMs = Math.max(error.retryAfterMs ?? 0, delayMs(rule, failed));
    const limitMs = error instanceof UnreachableError ? limits.unreachableMaxMs : limits.elapsedMaxMs;
    const leftMs = limitMs - (clock.nowMs() - startMs);
    if (waitMs > Math.min(leftMs, WAIT_MAX_MS)) return false;
    deps.onRetry(error, failed, waitMs);
    await clock.sleep(waitMs, signal);
    return true;
  };
  try {
    return await pRetry(
      (attempt) => {
        attempts = attempt;
        return work(attempt);
      },
      {
        retries: Math.max(limits.attemptsMax, UNREACHABLE_ATTEMPTS_MAX) - 1,
        // The delays are the policy's, taken in shouldRetry.
        minTimeout: 0,
        signal,
        shouldRetry: ({ error, attemptNumber }) => shouldRetry(error, attemptNumber),
      },
    );
  } catch (error) {
    throw signal.aborted || attempts < 2 ? error : summed(error, attempts, first);
  }
}

/** The last failure with what came before it: the first one is usually the one to act on. */
function summed(last: unknown, attempts: number, first: unknown): unknown {
  if (!(last instanceof RetryableError) && !(last instanceof PermanentError)) return last;
  const isSame = first === undefined || first === last || errorLine(first) === errorLine(last);
  const history = isSame ? '' : `; the first time: ${errorLine(first)}`;
  const message = `${last.message} (tried ${attempts} times${history})`;
  const details = {
    code: last.code,
    meta: { ...last.meta, attempts, firstFailure: errorLine(first) },
    cause: last,
  };
  if (last instanceof PermanentError) return new PermanentError(message, details);
  const retryable = { ...details, retryAfterMs: last.retryAfterMs };
  return last instanceof UnreachableError
    ? new UnreachableError(message, retryable)
    : new RetryableError(message, retryable);
}
