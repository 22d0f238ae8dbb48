/**
 * Classifies errors from the database and its connection, so that callers know whether a
 * retry can help.
 */
import {
  errorCode,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../errors/errors.ts';
import { classifyDatabaseCode } from '../errors/faults.ts';

/**
 * Classifies a database error as retryable or permanent. Our own errors are returned
 * unchanged. A lost connection is classified as unreachable even without an error code,
 * because pg does not set one.
 * @param action what was being done, for the message: "commit a page of parties"
 */
export function databaseError(action: string, error: unknown): Error {
  if (error instanceof RetryableError || error instanceof PermanentError)
    return error;
  const code = errorCode(error);
  const details = {
    code: `DATABASE_${code}`,
    cause: error,
    meta: { sqlstate: code },
  };
  const state = error instanceof Error ? error.message : String(error);
  const fault =
    code === 'UNKNOWN' && isConnectionLoss(error)
      ? 'unreachable'
      : classifyDatabaseCode(code);
  if (fault === 'unreachable') {
    return new UnreachableError(
      `Cannot ${action}: the database is not reachable (${state})`,
      { ...details, code: 'DATABASE_UNREACHABLE' },
    );
  }
  const RefusedError = fault === 'retryable' ? RetryableError : PermanentError;
  return new RefusedError(`Cannot ${action}: ${state}`, details);
}

/**
 * Whether the error is a lost connection. For that, pg throws a plain Error without a
 * code; errors from statements are subclasses.
 */
function isConnectionLoss(error: unknown): boolean {
  return (
    error instanceof Error &&
    error.constructor === Error &&
    !('severity' in error) &&
    !('code' in error)
  );
}

/** Runs `work` on the database and classifies its errors. */
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
