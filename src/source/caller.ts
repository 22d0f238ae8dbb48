/** One request to the source: rate limit, HTTP, status, retries. */
import { errorCode, RetryableError } from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import { exhaustedForMs } from './wire/answer-headers.ts';
import { readStart } from './wire/body.ts';
import { answerError } from './retry/failure.ts';
import {
  whereOf,
  type HttpAnswer,
  type HttpGet,
  type HttpLimits,
  type HttpRequest,
} from './wire/http.ts';
import type { Route } from './ports.ts';
import type { RateDeps, RateLimiter } from './rate-limit.ts';
import { withRetries, type RetryLimits } from './retry/retry.ts';

const ERROR_BODY_BYTES_MAX = 64 * 1024;
/** For a ban without a duration: the service's default. */
const BAN_MS = 10 * 60_000;

interface CallerDeps extends Pick<RateDeps, 'clock' | 'observer'> {
  readonly get: HttpGet;
  readonly rate: RateLimiter;
  readonly log: Pick<Log, 'warn'> | undefined;
}

export interface SourceLimits {
  readonly connectMs?: number;
  readonly list?: HttpLimits;
  readonly export?: HttpLimits;
  readonly listRetries?: RetryLimits;
  readonly exportRetries?: RetryLimits;
}

/** Where the source is asked, and within which limits. */
export interface SourceAccess {
  readonly caller: SourceCaller;
  readonly baseUrl: string;
  readonly limits?: SourceLimits | undefined;
}

export interface Question extends HttpRequest {
  readonly route: Route;
  readonly retries: RetryLimits;
}

/**
 * A good answer, not yet read. `done` is called when it is over, however it ended; its
 * first call counts.
 */
export interface OpenAnswer extends Pick<
  HttpAnswer,
  'headers' | 'body' | 'isFramed'
> {
  done(error?: unknown): Promise<void>;
}

export interface SourceCaller {
  /**
   * Asks, and reads the whole answer with `read`; a failure while reading is tried again
   * too.
   * @throws as `withRetries` does
   */
  read<Result>(
    question: Question,
    signal: AbortSignal,
    read: (answer: OpenAnswer) => Promise<Result>,
  ): Promise<Result>;
  /** Asks, and hands the answer over as soon as its headers are there. */
  open(question: Question, signal: AbortSignal): Promise<OpenAnswer>;
}

export function openCaller({
  get,
  rate,
  clock,
  observer,
  log,
}: CallerDeps): SourceCaller {
  async function ask(question: Question, attempt: number, signal: AbortSignal) {
    const { route } = question;
    await rate.pass(route, signal);
    const startMs = clock.nowMs();
    let answer: HttpAnswer | undefined;
    let isDone = false;
    const done = async (error?: unknown) => {
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
    };
    try {
      answer = await get(question, signal);
      const emptyMs = exhaustedForMs(answer.headers);
      if (emptyMs !== undefined) rate.quiet(emptyMs);
      if (answer.status === 200) return { ...answer, done };
      const body = await readStart(answer.body, ERROR_BODY_BYTES_MAX);
      signal.throwIfAborted();
      const error = answerError(question.action, whereOf(question.url), {
        ...answer,
        body,
      });
      const isBan =
        error instanceof RetryableError && error.code === 'SOURCE_BANNED';
      if (isBan) await rate.ban(error.retryAfterMs ?? BAN_MS);
      throw error;
    } catch (error) {
      await done(error);
      throw error;
    }
  }

  function retried<Result>(
    question: Question,
    signal: AbortSignal,
    work: (answer: OpenAnswer) => Promise<Result> | Result,
  ): Promise<Result> {
    const { route, retries } = question;
    const onRetry = (err: Error, attempt: number, waitMs: number): void => {
      observer.onWait({ route, reason: 'retry', waitMs });
      log?.warn({ route, attempt, waitMs, err }, 'The source is asked again');
    };
    const attempted = async (attempt: number) =>
      work(await ask(question, attempt, signal));
    return withRetries(retries, { clock, onRetry }, signal, attempted);
  }

  return {
    open: (question, signal) => retried(question, signal, (answer) => answer),
    read: (question, signal, read) =>
      retried(question, signal, async (answer) => {
        try {
          const result = await read(answer);
          await answer.done();
          return result;
        } catch (error) {
          await answer.done(error);
          throw error;
        }
      }),
  };
}
