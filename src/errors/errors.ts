/**
 * The two root classes of every expected error. The class says whether a retry can help,
 * the `code` identifies the error (it is stable and documented), and the `cause` is the
 * underlying error.
 */
export interface ErrorDetails {
  /**
   * The stable identity of the error, for example `SOURCE_STATUS`. All codes are
   * documented in docs/errors.md.
   */
  code: string;
  /**
   * The facts that a reader needs to act on the error, such as where it happened and with
   * which value. It never contains secrets.
   */
  meta?: Readonly<Record<string, unknown>>;
  cause?: unknown;
}

abstract class LedgerMirrorError extends Error {
  readonly code: string;
  readonly meta: Readonly<Record<string, unknown>>;

  constructor(message: string, details: ErrorDetails) {
    super(
      message,
      details.cause === undefined ? undefined : { cause: details.cause },
    );
    this.name = new.target.name;
    this.code = details.code;
    this.meta = details.meta ?? {};
  }
}

/**
 * An error after which the same call may succeed later. `retryAfterMs` is how long the
 * called service asked us to wait.
 */
export class RetryableError extends LedgerMirrorError {
  readonly retryAfterMs: number | undefined;

  constructor(
    message: string,
    details: ErrorDetails & { retryAfterMs?: number | undefined },
  ) {
    super(message, details);
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** An error that will recur until an operator changes something. */
export class PermanentError extends LedgerMirrorError {}

/**
 * A service could not be reached at all. The process exits with 75, and the work can be
 * retried.
 */
export class UnreachableError extends RetryableError {}

/**
 * The usage or configuration is wrong; the message has one line for each problem. The
 * process exits with 1.
 */
export class UsageError extends PermanentError {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'), { code: 'USAGE' });
    this.problems = problems;
  }
}

/**
 * Another worker has taken over this unit of work. The caller has committed nothing, so
 * it stops without reporting an error.
 */
export class FencedError extends PermanentError {
  constructor(unit: string) {
    super(`Cannot commit ${unit}: another worker has taken it over`, {
      code: 'FENCED',
      meta: { unit },
    });
  }
}

export function isRetryable(error: unknown): boolean {
  return error instanceof RetryableError;
}

/**
 * Returns the stable code of one of our errors, or the code set by Node or a driver;
 * otherwise `UNKNOWN`.
 */
export function errorCode(error: unknown): string {
  if (
    typeof error === 'object' &&
    error !== null &&
    'code' in error &&
    typeof error.code === 'string'
  ) {
    return error.code;
  }
  return 'UNKNOWN';
}

/**
 * Describes an error in one line for people: its message, followed by the message of the
 * innermost cause.
 */
export function errorLine(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  let innermost: unknown = error;
  for (
    let depth = 0;
    depth < 8 && innermost instanceof Error && innermost.cause !== undefined;
    depth += 1
  ) {
    innermost = innermost.cause;
  }
  const own = error.message.split('\n', 1)[0] ?? '';
  if (innermost === error || !(innermost instanceof Error)) return own;
  const cause = innermost.message.split('\n', 1)[0] ?? '';
  return cause === '' || own.includes(cause) ? own : `${own} (${cause})`;
}
