/** Tries a call again as the policy says, within limits of attempts and time. */
import pRetry from 'p-retry';
import {
  errorCode,
  errorLine,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../../errors/errors.ts';
import type { Clock } from '../ports.ts';
import { WAIT_MAX_MS } from '../rate-limit.ts';
import { RETRY_RULES, type RetryRule } from './failure.ts';

export interface RetryLimits {
  readonly attemptsMax: number;
  /** From the first attempt; a wait that the source asked for counts too. */
  readonly elapsedMaxMs: number;
  /** Where no connection can be opened, however many attempts that takes. */
  readonly unreachableMaxMs: number;
  /**
   * Only failures that cost the source nothing: a query that ran must not run again
   * unasked.
   */
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
const UNREACHABLE_ATTEMPTS_MAX = 1_000;

export interface RetryDeps {
  readonly clock: Clock;
  /** Told before each wait. */
  readonly onRetry: (error: Error, attempt: number, waitMs: number) => void;
}

/**
 * @param work gets the number of the attempt, from 1
 * @throws the last attempt's error, with the number of attempts and the first failure in
 *   `meta`; a RetryableError keeps `retryAfterMs`, so that the job can be put off where
 *   the wait is too long
 */
export async function withRetries<Result>(
  limits: RetryLimits,
  { clock, onRetry }: RetryDeps,
  signal: AbortSignal,
  work: (attempt: number) => Promise<Result>,
): Promise<Result> {
  const startMs = clock.nowMs();
  let attempts = 0;
  let first: unknown;

  /** @returns undefined where it is not tried again */
  function chooseWaitMs(error: Error) {
    const rule = RETRY_RULES[errorCode(error)];
    if (!(error instanceof RetryableError) || rule === undefined)
      return undefined;
    if (limits.onlyCheap && !rule.isCheap) return undefined;
    const isUnreachable = error instanceof UnreachableError;
    if (!isUnreachable && attempts >= limits.attemptsMax) return undefined;
    const waitMs = Math.max(error.retryAfterMs ?? 0, delayMs(rule, attempts));
    const endMs =
      startMs + (isUnreachable ? limits.unreachableMaxMs : limits.elapsedMaxMs);
    return waitMs > Math.min(endMs - clock.nowMs(), WAIT_MAX_MS)
      ? undefined
      : waitMs;
  }

  async function shouldRetry(error: Error) {
    first ??= error;
    const waitMs = chooseWaitMs(error);
    if (waitMs === undefined) return false;
    onRetry(error, attempts, waitMs);
    await clock.sleep(waitMs, signal);
    return true;
  }

  try {
    const count = (attempt: number): Promise<Result> => {
      attempts = attempt;
      return work(attempt);
    };
    return await pRetry(count, {
      // The limits and delays are the policy's, taken in shouldRetry.
      retries: UNREACHABLE_ATTEMPTS_MAX,
      minTimeout: 0,
      signal,
      shouldRetry: ({ error }) => shouldRetry(error),
    });
  } catch (error) {
    throw signal.aborted || attempts < 2
      ? error
      : summed(error, attempts, first);
  }
}

/**
 * The delay before attempt `failed + 1`: doubling from the rule's minimum, with jitter of
 * up to half of it, so that workers do not retry together.
 */
export function delayMs(
  rule: RetryRule,
  failed: number,
  random: () => number = Math.random,
): number {
  const whole = Math.min(rule.minMs * 2 ** (failed - 1), rule.maxMs);
  return Math.round(whole * (0.5 + random() / 2));
}

/**
 * The last failure with what came before it: the first one is usually the one to act on.
 */
function summed(last: unknown, attempts: number, first: unknown): unknown {
  if (!(last instanceof RetryableError) && !(last instanceof PermanentError))
    return last;
  const isSame =
    first === undefined ||
    first === last ||
    errorLine(first) === errorLine(last);
  const history = isSame ? '' : `; the first time: ${errorLine(first)}`;
  const message = `${last.message} (tried ${attempts} times${history})`;
  const details = {
    code: last.code,
    meta: { ...last.meta, attempts, firstFailure: errorLine(first) },
    cause: last,
  };
  if (last instanceof PermanentError)
    return new PermanentError(message, details);
  const SameError =
    last instanceof UnreachableError ? UnreachableError : RetryableError;
  return new SameError(message, {
    ...details,
    retryAfterMs: last.retryAfterMs,
  });
}
