/**
 * The two roots of every error that is expected to happen. The class is the retry decision, the
 * `code` is the identity (stable, documented), `cause` is the history.
 */
export interface ErrorDetails {
  /** Stable identity, for example `SOURCE_STATUS`. Documented in docs/errors.md. */
  code: string;
  /** What a reader needs to act: where it happened and with which value. No secrets. */
  meta?: Readonly<Record<string, unknown>>;
  cause?: unknown;
}

abstract class LedgerMirrorError extends Error {
  readonly code: string;
  readonly meta: Readonly<Record<string, unknown>>;

  constructor(message: string, details: ErrorDetails) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = details.code;
    this.meta = details.meta ?? {};
  }
}

/** The same call may succeed later. `retryAfterMs` is what the other side asked us to wait. */
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

/** The same call will fail again until somebody changes something. */
export class PermanentError extends LedgerMirrorError {}

/** A service could not be reached at all: the process ends in 75, the work can be tried again. */
export class UnreachableError extends RetryableError {}

/** Wrong usage or configuration: one line for each problem, exit 1. */
export class UsageError extends PermanentError {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('\n'), { code: 'USAGE' });
    this.problems = problems;
  }
}

/** Another worker took over this unit of work: stop quietly, nothing of ours was committed. */
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

/** The stable code of an error of ours, or the code that Node or a driver gave it. */
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

/** One line for people: the message and, behind it, the innermost cause. */
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
