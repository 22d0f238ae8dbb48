/**
 * Reads on behalf of somebody who waits for the answer: an error after a limit, not
 * silence.
 */
import { withTimeout } from '../concurrency/timeouts.ts';
import { UnreachableError } from '../errors/errors.ts';
import { mapDatabaseError } from './database-error.ts';

const LIMIT_MS = 30_000;

/**
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
