/**
 * Whole transactions, retried whole. Nothing is retried inside an aborted one; the first error is kept.
 */
import type { QueryExecutorProvider, RawBuilder } from 'kysely';
import pRetry from 'p-retry';
import {
  errorCode,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../errors/errors.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import { classifyDatabaseCode } from '../errors/faults.ts';
import type { Database } from './database.ts';

/** Retried at once, more or less: others were in the way. */
const CONFLICTS = { retries: 4, minTimeout: 50, randomize: true };
/** How long a restart or a failover may take. */
const UNAVAILABLE = { waitMs: 45_000, stepMinMs: 100, stepMaxMs: 2_000 };

/**
 * Classifies an error of the database as retryable or permanent. Our own errors pass unchanged.
 * A connection that ended without a SQLSTATE counts as unreachable: pg gives such errors no code.
 */
export function databaseError(action: string, error: unknown): Error {
  if (error instanceof RetryableError || error instanceof PermanentError) return error;
  const code = errorCode(error);
  const details = { code: `DATABASE_${code}`, cause: error, meta: { sqlstate: code } };
  const state = error instanceof Error ? error.message : String(error);
  const fault =
    code === 'UNKNOWN' && isConnectionLoss(error)
      ? 'unreachable'
      : classifyDatabaseCode(code);
  if (fault === 'unreachable') {
    return new UnreachableError(
      `Cannot ${action}: the database is not reachable (${state})`,
      {
        ...details,
        code: 'DATABASE_UNREACHABLE',
      },
    );
  }
  const RefusedError = fault === 'retryable' ? RetryableError : PermanentError;
  return new RefusedError(`Cannot ${action}: ${state}`, details);
}

/** A plain Error without a code that does not come from a statement: pg raises it for a dead connection. */
function isConnectionLoss(error: unknown): boolean {
  return (
    error instanceof Error &&
    error.constructor === Error &&
    !('severity' in error) &&
    !('code' in error)
  );
}

/**
 * Runs `work` in one transaction and retries it whole while the database says that this can help.
 * `work` must not do anything outside the transaction.
 * @param action for messages: "commit a page of parties"
 * @throws RetryableError | PermanentError with the first error of the last attempt as its cause
 */
export function inTransaction<Result>(
  db: Database,
  { action }: { readonly action: string },
  work: (tx: Database) => Promise<Result>,
): Promise<Result> {
  return pRetry(() => mapDatabaseError(action, () => db.transaction().execute(work)), {
    ...CONFLICTS,
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

/** Runs statements outside a transaction and classifies their errors. */
export async function mapDatabaseError<Result>(
  action: string,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    throw databaseError(action, error);
  }
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
