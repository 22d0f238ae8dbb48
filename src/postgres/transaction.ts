/**
 * Runs transactions, which are always retried as a whole, because nothing can be retried
 * inside an aborted one.
 */
import pRetry from 'p-retry';
import { RetryableError, UnreachableError } from '../errors/errors.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import type { Database } from './database.ts';
import { mapDatabaseError } from './database-error.ts';

/** Conflicts with other transactions are retried almost immediately. */
const CONFLICTS = { retries: 4, minTimeout: 50, randomize: true };
/** How long to wait for a database that restarts or fails over. */
const UNAVAILABLE = { waitMs: 45_000, stepMinMs: 100, stepMaxMs: 2_000 };

export interface TransactionOptions {
  /** The name of the action for messages: "commit a page of parties". */
  readonly action: string;
  /**
   * Number of retries after a conflict. Must be 0 if `work` also does something outside
   * the database.
   */
  readonly retries?: number;
}

/**
 * Runs `work` in one transaction, and retries it as a whole while the error is retryable.
 * `work` must not have effects outside the transaction, unless `retries` is 0.
 * @throws RetryableError or PermanentError, whose cause is the first error of the last
 *   attempt
 */
export function inTransaction<Result>(
  db: Database,
  { action, retries = CONFLICTS.retries }: TransactionOptions,
  work: (tx: Database) => Promise<Result>,
): Promise<Result> {
  return pRetry(
    () => mapDatabaseError(action, () => db.transaction().execute(work)),
    {
      ...CONFLICTS,
      retries,
      shouldRetry: ({ error }) =>
        error instanceof RetryableError && !(error instanceof UnreachableError),
    },
  );
}

export interface RetryOptions<Result> {
  /** The name of the action for messages: "commit a page of parties". */
  readonly action: string;
  readonly signal: AbortSignal;
  /**
   * Called before each retry, because the response to a COMMIT may have been lost.
   * Returns the result of the work if it was done despite the error.
   */
  readonly wasDone?: (() => Promise<Result | undefined>) | undefined;
}

/**
 * Retries `work` for up to 45 seconds while the database restarts or fails over.
 * @throws the first error after that time, or a permanent error immediately
 */
export function retryWhileUnavailable<Result>(
  { action, signal, wasDone }: RetryOptions<Result>,
  work: () => Promise<Result>,
): Promise<Result> {
  let first: Error | undefined;
  const attempt = async (): Promise<
    { readonly result: Result } | undefined
  > => {
    try {
      const done =
        first && (await mapDatabaseError(action, async () => wasDone?.()));
      return { result: done ?? (await mapDatabaseError(action, work)) };
    } catch (error) {
      if (!(error instanceof RetryableError)) throw error;
      first ??= error;
      return undefined;
    }
  };
  const outcome = waitFor(
    attempt,
    { ...UNAVAILABLE, signal },
    () => first ?? new Error(action),
  );
  return outcome.then(({ result }) => result);
}
