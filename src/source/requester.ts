/**
 * Sends requests to the source: obeys the rate limit, interprets the status, and
 * retries.
 */
import {
  errorCode,
  errorLine,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import { answerError, RETRY_RULES, type RetryRule } from './failure.ts';
import type { Clock, Route, SourceObserver } from './ports.ts';
import { WAIT_MAX_MS, type RateLimiter } from './rate-limit.ts';
import { exhaustedForMs } from './wire/answer-headers.ts';
import { readStart } from './wire/body.ts';
import {
  whereOf,
  type HttpAnswer,
  type HttpGet,
  type HttpLimits,
  type HttpRequest,
} from './wire/http.ts';

const ERROR_BODY_BYTES_MAX = 64 * 1024;
/**
 * How long a ban lasts if the response does not say so. This is the service's default.
 */
const BAN_MS = 10 * 60_000;

/** How long and how often a request is retried. */
export interface RetryLimits {
  readonly attemptsMax: number;
  /**
   * The time limit, counted from the first attempt and including waits that the source
   * demands.
   */
  readonly elapsedMaxMs: number;
  /**
   * The time limit while no connection can be opened, regardless of the number of
   * attempts.
   */
  readonly unreachableMaxMs: number;
  /**
   * Whether to retry only failures that cost the source nothing. Only the caller may
   * decide to repeat a query that has run.
   */
  readonly onlyCheap: boolean;
}

export const LIST_RETRIES: RetryLimits = {
  attemptsMax: 5,
  elapsedMaxMs: 10 * 60_000,
  unreachableMaxMs: 60_000,
  onlyCheap: false,
};
/**
 * The limits of a request that is never retried, because the caller wants to know if it
 * failed.
 */
export const ONE_ATTEMPT: RetryLimits = {
  ...LIST_RETRIES,
  attemptsMax: 1,
  unreachableMaxMs: 0,
};
export const EXPORT_RETRIES: RetryLimits = { ...LIST_RETRIES, onlyCheap: true };

/** Limits for each kind of request; tests shorten them. */
export interface SourceLimits {
  readonly connectMs?: number;
  readonly list?: HttpLimits;
  readonly export?: HttpLimits;
  readonly listRetries?: RetryLimits;
  readonly exportRetries?: RetryLimits;
}

/** What the clients for lists and exports share. */
export interface SourceAccess {
  readonly requester: SourceRequester;
  readonly baseUrl: string;
  readonly limits?: SourceLimits | undefined;
}

export interface SourceRequest extends HttpRequest {
  readonly route: Route;
  readonly retries: RetryLimits;
}

/** A successful response whose body has not been read yet. */
export interface OpenAnswer {
  /** The status; 206 if the response is the requested byte range. */
  readonly status: 200 | 206;
  readonly headers: HttpAnswer['headers'];
  /** The decompressed body, which can be iterated once. Its errors are classified. */
  readonly body: AsyncIterable<Buffer>;
  /**
   * Whether the transport marks the end of the body, which then proves that the body is
   * complete.
   */
  readonly isFramed: boolean;
  /**
   * Closes the response and reports the request, however it ended. Only the first call
   * has an effect.
   */
  done(error?: unknown): Promise<void>;
}

/** Codes that mean that the source refused the client's credentials. */
const WHO_REFUSED: ReadonlySet<string> = new Set([
  'SOURCE_UNAUTHORIZED',
  'SOURCE_FORBIDDEN',
]);

/** What the requester needs to know about the credentials. */
export interface Credentials {
  readonly certificate?: object | undefined;
}

/** nginx answers 400 if it refuses the client certificate. */
const MAYBE_CERTIFICATE = 'SOURCE_REFUSED';
/**
 * Some servers close the connection without an alert if they refuse the client
 * certificate. A server that crashes does so too.
 */
const RARELY_CERTIFICATE = 'SOURCE_BROKE';

/**
 * Whether a failure shows that the source refuses the credentials. The request must be
 * one that every source answers, such as a request for a page of a list.
 */
export function isRefusalOf(
  { certificate }: Credentials,
  error: unknown,
): boolean {
  const code = errorCode(error);
  const isOfCertificate =
    certificate !== undefined && code === MAYBE_CERTIFICATE;
  return WHO_REFUSED.has(code) || isOfCertificate;
}

export interface RequesterDeps {
  readonly get: HttpGet;
  /**
   * The credentials, which are reloaded when the source refuses them. `get` always
   * sends the current ones.
   */
  readonly credentials: RotatingSecret<Credentials>;
  readonly rate: RateLimiter;
  readonly clock: Clock;
  readonly observer: SourceObserver;
  readonly log: Pick<Log, 'warn'> | undefined;
}

/**
 * Sends requests within the rate limit that all workers share, and retries transient
 * failures.
 */
export class SourceRequester {
  readonly #deps: RequesterDeps;

  constructor(deps: RequesterDeps) {
    this.#deps = deps;
  }

  /**
   * Sends the request, and resolves as soon as the response's headers have arrived.
   * @throws the last attempt's error, with the number of attempts and the first failure
   *   in `meta`. A RetryableError keeps `retryAfterMs`, so that the job can be
   *   postponed if the wait is too long
   */
  open(request: SourceRequest, signal: AbortSignal): Promise<OpenAnswer> {
    return this.#retry(request, signal, (answer) => Promise.resolve(answer));
  }

  /**
   * Sends the request and reads the whole response with `read`. A failure in the middle
   * of the body is retried too.
   * @throws as `open` does
   */
  read<Result>(
    request: SourceRequest,
    signal: AbortSignal,
    read: (answer: OpenAnswer) => Promise<Result>,
  ): Promise<Result> {
    return this.#retry(request, signal, async (answer) => {
      try {
        const result = await read(answer);
        await answer.done();
        return result;
      } catch (error) {
        await answer.done(error);
        throw error;
      }
    });
  }

  async #retry<Result>(
    request: SourceRequest,
    signal: AbortSignal,
    use: (answer: OpenAnswer) => Promise<Result>,
  ): Promise<Result> {
    const { clock, observer, log } = this.#deps;
    const { route, retries } = request;
    const startMs = clock.nowMs();
    let firstError: unknown;
    for (let attempt = 1; ; attempt += 1) {
      signal.throwIfAborted();
      try {
        return await use(await this.#sendAsKnown(request, attempt, signal));
      } catch (error) {
        if (signal.aborted) throw error;
        firstError ??= error;
        const elapsedMs = clock.nowMs() - startMs;
        const waitMs = chooseWaitMs(error, attempt, elapsedMs, retries);
        if (waitMs === undefined) throw withHistory(error, attempt, firstError);
        observer.onWait({ route, reason: 'retry', waitMs });
        log?.warn(
          { route, attempt, waitMs, err: error },
          'The request to the source is repeated',
        );
        await clock.sleep(waitMs, signal);
      }
    }
  }

  /**
   * Makes one attempt, and repeats it immediately if the source refuses credentials
   * that have been replaced in the meantime. The refusal cost the source nothing, so
   * even an export may be sent again.
   */
  async #sendAsKnown(
    request: SourceRequest,
    attempt: number,
    signal: AbortSignal,
  ): Promise<OpenAnswer> {
    const { credentials, log } = this.#deps;
    for (;;) {
      const sent = credentials.current;
      try {
        const answer = await this.#send(request, attempt, signal);
        credentials.accept();
        return answer;
      } catch (error) {
        if (!this.#renew(sent, error)) {
          const isRefused = WHO_REFUSED.has(errorCode(error));
          throw isRefused ? withAdvice(error, credentials) : error;
        }
        log?.warn(
          { secret: credentials.name, reason: errorLine(error) },
          'The source refused a secret, which has been replaced: the ' +
            'request is repeated with the new one',
        );
      }
    }
  }

  /**
   * Whether other credentials are available by now. Always false if the failure cannot be
   * due to those that were sent.
   */
  #renew(sent: Credentials, error: unknown): boolean {
    const { credentials } = this.#deps;
    if (isRefusalOf(sent, error)) return credentials.renew(sent);
    const isDoubtful =
      sent.certificate !== undefined && errorCode(error) === RARELY_CERTIFICATE;
    return isDoubtful && credentials.readAgain(sent);
  }

  /** Makes one attempt. Every attempt that passed the rate limit is reported once. */
  async #send(
    request: SourceRequest,
    attempt: number,
    signal: AbortSignal,
  ): Promise<OpenAnswer> {
    const { get, rate, clock, observer } = this.#deps;
    const { route } = request;
    await rate.pass(route, signal);
    const startMs = clock.nowMs();
    let answer: HttpAnswer | undefined;
    let isDone = false;

    async function done(error?: unknown): Promise<void> {
      if (isDone) return;
      isDone = true;
      await answer?.[Symbol.asyncDispose]();
      observer.onRequest({
        route,
        status: answer?.status,
        durationMs: clock.nowMs() - startMs,
        bytes: answer?.wireBytes() ?? 0,
        attempt,
        errorCode: error === undefined ? undefined : errorCode(error),
      });
    }

    try {
      answer = await get(request, signal);
      const emptyMs = exhaustedForMs(answer.headers);
      if (emptyMs !== undefined) rate.pauseFor(emptyMs);
      const { status } = answer;
      const isPart = status === 206 && request.range !== undefined;
      if (status === 200 || isPart) {
        const { headers, body, isFramed } = answer;
        return { status, headers, body, isFramed, done };
      }
      throw await this.#refusal(request, answer, signal);
    } catch (error) {
      await done(error);
      throw error;
    }
  }

  /** Returns the error for an unsuccessful response. A ban is stored for all workers. */
  async #refusal(
    request: SourceRequest,
    answer: HttpAnswer,
    signal: AbortSignal,
  ): Promise<Error> {
    const { status, headers, proxy } = answer;
    const body = await readStart(answer.body, ERROR_BODY_BYTES_MAX);
    signal.throwIfAborted();
    const where = whereOf(request.url);
    const error = answerError(request.action, where, {
      status,
      headers,
      body,
      proxy,
    });
    if (error instanceof RetryableError && error.code === 'SOURCE_BANNED')
      await this.#deps.rate.ban(error.retryAfterMs ?? BAN_MS);
    return error;
  }
}

/**
 * Decides whether and when to retry.
 * @param attempt the number of the attempt that failed, from 1
 * @returns how long to wait before the next attempt, in milliseconds; undefined if
 *   there is none
 */
function chooseWaitMs(
  error: unknown,
  attempt: number,
  elapsedMs: number,
  limits: RetryLimits,
): number | undefined {
  if (!(error instanceof RetryableError)) return undefined;
  const rule = RETRY_RULES[error.code];
  if (rule === undefined) return undefined;
  if (limits.onlyCheap && !rule.isCheap) return undefined;
  const isUnreachable = error instanceof UnreachableError;
  if (!isUnreachable && attempt >= limits.attemptsMax) return undefined;
  const waitMs = Math.max(error.retryAfterMs ?? 0, delayMs(rule, attempt));
  const totalMaxMs = isUnreachable
    ? limits.unreachableMaxMs
    : limits.elapsedMaxMs;
  const leftMs = Math.min(totalMaxMs - elapsedMs, WAIT_MAX_MS);
  return waitMs > leftMs ? undefined : waitMs;
}

/**
 * Returns the delay after `failed` attempts: exponential backoff from the rule's
 * minimum, minus a random part of up to half, so that workers do not all retry at once.
 */
export function delayMs(
  rule: RetryRule,
  failed: number,
  random: () => number = Math.random,
): number {
  const fullMs = Math.min(rule.minMs * 2 ** (failed - 1), rule.maxMs);
  return Math.round(fullMs * (0.5 + random() / 2));
}

/**
 * Adds advice for a secret from a file, naming the files that were reloaded in vain. If
 * a fixed secret is refused, the error already has its own advice.
 */
function withAdvice(
  error: unknown,
  { isFromFile, advice }: RotatingSecret<object>,
): unknown {
  if (!isFromFile || !(error instanceof PermanentError)) return error;
  const { code, meta } = error;
  return new PermanentError(`${error.message}; ${advice}`, {
    code,
    meta,
    cause: error,
  });
}

/**
 * Adds the number of attempts and the first failure, which is usually the one to act
 * on.
 */
function withHistory(last: unknown, attempts: number, first: unknown): unknown {
  if (attempts < 2) return last;
  if (!(last instanceof RetryableError) && !(last instanceof PermanentError))
    return last;
  const firstFailure = errorLine(first);
  const isSame = first === last || firstFailure === errorLine(last);
  const history = isSame ? '' : `; the first time: ${firstFailure}`;
  const message = `${last.message} (tried ${attempts} times${history})`;
  const details = {
    code: last.code,
    meta: { ...last.meta, attempts, firstFailure },
    cause: last,
  };
  if (last instanceof PermanentError)
    return new PermanentError(message, details);
  const SameError =
    last instanceof UnreachableError ? UnreachableError : RetryableError;
  return new SameError(message, {
    ...details,
    retryAfterMs: last.retryAfterMs,
  });
}
