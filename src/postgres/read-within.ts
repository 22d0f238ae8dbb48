/**
 * Reads with a time limit, for callers that wait for the answer: they get an error
 * instead of waiting forever.
 */
import { withTimeout } from '../concurrency/timeouts.ts';
import { UnreachableError } from '../errors/errors.ts';
import { mapDatabaseError } from './database-error.ts';

const LIMIT_MS = 30_000;

/**
 * Runs a read within the limit.
 * @param action for messages: "list runs"
 * @param limitMs the longest that the read may take
 * @throws UnreachableError `DATABASE_UNREACHABLE` after the limit
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
