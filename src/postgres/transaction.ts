/**
 * Whole transactions, retried whole. Nothing is retried inside an aborted one; the first error is kept.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { QueryExecutorProvider, RawBuilder } from 'kysely';
import { errorCode, PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';
import { waitFor, within } from '../core/waiting.ts';
import { classifyDatabaseCode } from '../core/faults.ts';
import type { Database } from './database.ts';

const ATTEMPTS_MAX = 5;
const DELAY_MIN_MS = 50;
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
  const fault = code === 'UNKNOWN' && isConnectionLoss(error) ? 'unreachable' : classifyDatabaseCode(code);
  if (fault === 'unreachable') {
    return new UnreachableError(`Cannot ${action}: the database is not reachable (${state})`, {
      ...details,
      code: 'DATABASE_UNREACHABLE',
    });
  }
  const RefusedError = fault === 'retryable' ? RetryableError : PermanentError;
  return new RefusedError(`Cannot ${action}: ${state}`, details);
}

/** A plain Error without a code that does not come from a statement: pg raises it for a dead connection. */
function isConnectionLoss(error: unknown): boolean {
  return (
    error instanceof Error && error.constructor === Error && !('severity' in error) && !('code' in error)
  );
}

export interface TransactionOptions {
  /** For messages: "commit a page of parties". */
  readonly action: string;
  readonly signal?: AbortSignal;
}

/**
 * Runs `work` in one transaction and retries it whole while the database says that this can help.
 * `work` must not do anything outside the transaction.
 * @throws RetryableError | PermanentError with the first error of the last attempt as its cause
 */
export async function inTransaction<Result>(
  db: Database,
  options: TransactionOptions,
  work: (tx: Database) => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    options.signal?.throwIfAborted();
    try {
      return await db.transaction().execute(work);
    } catch (error) {
      const classed = databaseError(options.action, error);
      const isOver =
        attempt >= ATTEMPTS_MAX ||
        !(classed instanceof RetryableError) ||
        classed instanceof UnreachableError;
      if (isOver) throw classed;
    }
    const delayMs = DELAY_MIN_MS * 2 ** attempt * (0.5 + Math.random());
    await sleep(delayMs, undefined, options.signal === undefined ? {} : { signal: options.signal });
  }
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
  const found = waitFor(attempt, { ...UNAVAILABLE, signal }, () => first ?? new Error(action));
  return found.then(({ result }) => result);
}

/** Runs statements outside a transaction and classifies their errors. */
export async function mapDatabaseError<Result>(action: string, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    throw databaseError(action, error);
  }
}

/**
 * What somebody waits for at a screen: an answer, or after `limitMs` the error.
 * @throws UnreachableError `DATABASE_UNREACHABLE`
 */
export function answerWithin<Result>(
  limitMs: number,
  action: string,
  work: () => Promise<Result>,
): Promise<Result> {
  return within(
    limitMs,
    () => mapDatabaseError(action, work),
    () =>
      new UnreachableError(`Cannot ${action}: the database did not answer within ${limitMs} ms`, {
        code: 'DATABASE_UNREACHABLE',
      }),
  );
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
  if (row === undefined) throw new TypeError(`no row where there is always one: ${action}`);
  return row;
}
