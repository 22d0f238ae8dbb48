/**
 * Whole transactions, retried whole. Nothing is retried inside an aborted one; the first error is kept.
 */
import type { QueryExecutorProvider, RawBuilder } from 'kysely';
import pRetry from 'p-retry';
import { RetryableError, UnreachableError } from '../errors/errors.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import type { Database } from './database.ts';
import { mapDatabaseError } from './database-error.ts';

/** Retried at once, more or less: others were in the way. */
const CONFLICTS = { retries: 4, minTimeout: 50, randomize: true };
/** How long a restart or a failover may take. */
const UNAVAILABLE = { waitMs: 45_000, stepMinMs: 100, stepMaxMs: 2_000 };

export interface TransactionOptions {
  /** For messages: "commit a page of parties". */
  readonly action: string;
  /** How often conflicting work is repeated. 0 if `work` also does something outside the database. */
  readonly retries?: number;
}

/**
 * Runs `work` in one transaction and retries it whole while the database says that this can help.
 * `work` must not do anything outside the transaction.
 * @param action for messages: "commit a page of parties"
 * @throws RetryableError | PermanentError with the first error of the last attempt as its cause
 */
export function inTransaction<Result>(
  db: Database,
  { action, retries = CONFLICTS.retries }: TransactionOptions,
  work: (tx: Database) => Promise<Result>,
): Promise<Result> {
  return pRetry(() => mapDatabaseError(action, () => db.transaction().execute(work)), {
    ...CONFLICTS,
    retries,
    shouldRetry: ({ error }) =>
      error instanceof RetryableError && !(error instanceof UnreachableError),
  });
}

export interface RetryOptions<Result> {
  /** For messages: "commit a page of parties". */
  readonly action: string;
  readonly signal: AbortSignal;
  /** Asked before each repetition, where an answer may be lost: what the work returned, if it was done after all. */
  readonly wasDone?: (() => Promise<Result | undefined>) | undefined;
}

/**
 * Waits out a database that restarts or fails over. Work in a transaction is repeated whole.
 * @throws the first error, once the patience is at its end
 */
export function retryWhileUnavailable<Result>(
  { action, signal, wasDone }: RetryOptions<Result>,
  work: () => Promise<Result>,
): Promise<Result> {
  let first: Error | undefined;
  const attempt = async (): Promise<{ readonly result: Result } | undefined> => {
    try {
      const done = first && (await mapDatabaseError(action, async () => wasDone?.()));
      return { result: done ?? (await mapDatabaseError(action, work)) };
    } catch (error) {
      if (!(error instanceof RetryableError)) throw error;
      first ??= error;
      return undefined;
    }
  };
  const found = waitFor(
    attempt,
    { ...UNAVAILABLE, signal },
    () => first ?? new Error(action),
  );
  return found.then(({ result }) => result);
}

/** The rows of one statement, with its errors classified. */
export function readRows<Row>(
  db: QueryExecutorProvider,
  action: string,
  statement: RawBuilder<Row>,
): Promise<readonly Row[]> {
  return mapDatabaseError(action, async () => (await statement.execute(db)).rows);
}

/** The row of a statement that has exactly one, whatever the tables hold. */
export async function readRow<Row>(
  db: QueryExecutorProvider,
  action: string,
  statement: RawBuilder<Row>,
): Promise<Row> {
  const [row] = await readRows(db, action, statement);
  if (row === undefined)
    throw new TypeError(`no row where there is always one: ${action}`);
  return row;
}
