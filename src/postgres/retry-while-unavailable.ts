/**
 * Waits out a database that restarts or fails over. Work in a transaction is repeated whole; where an
 * answer may have been lost, it is looked up first whether the work was done.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { RetryableError } from '../core/errors.ts';
import { mapDatabaseError } from './transaction.ts';

const RETRY_MAX_MS = 45_000;
const DELAY_MIN_MS = 100;
const DELAY_MAX_MS = 2_000;

export interface RetryOptions<Result> {
  /** For messages: "commit a page of parties". */
  readonly action: string;
  readonly signal: AbortSignal;
  /** Asked before each repetition: what the work returned, if it was done after all. */
  readonly wasDone?: () => Promise<Result | undefined>;
}

/** @throws the first error, once the patience is at its end */
export async function retryWhileUnavailable<Result>(
  options: RetryOptions<Result>,
  work: () => Promise<Result>,
): Promise<Result> {
  const startedMs = performance.now();
  let first: unknown;
  for (let delayMs = DELAY_MIN_MS; ; delayMs = Math.min(delayMs * 2, DELAY_MAX_MS)) {
    options.signal.throwIfAborted();
    try {
      const done =
        first === undefined
          ? undefined
          : await mapDatabaseError(options.action, async () => options.wasDone?.());
      if (done !== undefined) return done;
      return await mapDatabaseError(options.action, work);
    } catch (error) {
      first ??= error;
      const isOver = performance.now() - startedMs >= RETRY_MAX_MS;
      if (!(error instanceof RetryableError)) throw error;
      if (isOver) throw first;
    }
    await sleep(delayMs, undefined, { signal: options.signal });
  }
}
