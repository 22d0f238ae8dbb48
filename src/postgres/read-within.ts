/**
 * Reads with a timeout, so that callers who wait for the result get an error instead of
 * waiting forever.
 */
import { withTimeout } from '../concurrency/timeouts.ts';
import { UnreachableError } from '../errors/errors.ts';
import { mapDatabaseError } from './database-error.ts';

const LIMIT_MS = 30_000;

/**
 * Runs a read with a timeout.
 * @param action what is being done, for messages: "list runs"
 * @param limitMs how long the read may take
 * @throws UnreachableError `DATABASE_UNREACHABLE` if it takes longer
 */
export function readWithin<Result>(
  action: string,
  read: () => Promise<Result>,
  limitMs = LIMIT_MS,
): Promise<Result> {
  const message = `Cannot ${action}: the database did not answer within ${limitMs} ms`;

  return withTimeout(
    limitMs,
    () => mapDatabaseError(action, read),
    () => new UnreachableError(message, { code: 'DATABASE_UNREACHABLE' }),
  );
}
