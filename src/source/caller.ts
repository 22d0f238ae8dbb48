/** One request to the source: rate limit, HTTP, status, retries. */
import { errorCode, RetryableError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { exhaustedForMs } from './wire/answer-headers.ts';
import { readStart } from './wire/body.ts';
import { answerError } from './retry/failure.ts';
import { whereOf, type HttpAnswer, type HttpRequest, type SourceHttp } from './wire/http.ts';
import type { Clock, Route, SourceObserver } from './ports.ts';
import type { RateLimiter } from './rate-limit.ts';
import { withRetries, type RetryLimits } from './retry/retry.ts';

const ERROR_BODY_BYTES_MAX = 64 * 1024;
/** For a ban without a duration: the service's default. */
const BAN_MS = 10 * 60_000;

export interface CallerOptions {
  readonly http: SourceHttp;
  readonly rate: RateLimiter;
  readonly clock: Clock;
  readonly observer: SourceObserver;
  readonly log: Pick<Log, 'warn'> | undefined;
}

export interface Question extends HttpRequest {
  readonly route: Route;
  readonly retries: RetryLimits;
}

/** A good answer, not yet read. `done` is called when it is over, however it ended; its first call counts. */
export interface OpenAnswer extends Pick<HttpAnswer, 'headers' | 'body' | 'framing'> {
  done(error?: unknown): Promise<void>;
}

export class SourceCaller {
  readonly #options: CallerOptions;

  constructor(options: CallerOptions) {
    this.#options = options;
  }

  /**
   * Asks, and reads the whole answer with `read`; a failure while reading is tried again too.
   * @throws as `withRetries` does
   */
  read<Result>(
    question: Question,
    signal: AbortSignal,
    read: (answer: OpenAnswer) => Promise<Result>,
  ): Promise<Result> {
    return this.#retried(question, signal, async (attempt) => {
      const answer = await this.#ask(question, attempt, signal);
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

  /** Asks, and hands the answer over as soon as its headers are there. */
  open(question: Question, signal: AbortSignal): Promise<OpenAnswer> {
    return this.#retried(question, signal, (attempt) => this.#ask(question, attempt, signal));
  }

  #retried<Result>(
    question: Question,
    signal: AbortSignal,
    work: (attempt: number) => Promise<Result>,
  ): Promise<Result> {
    const { clock, observer, log } = this.#options;
    const onRetry = (error: Error, attempt: number, waitMs: number): void => {
      observer.onWait({ route: question.route, reason: 'retry', waitMs });
      log?.warn({ route: question.route, attempt, waitMs, err: error }, 'The source is asked again');
    };
    return withRetries(question.retries, { clock, onRetry }, signal, work);
  }

  async #ask(question: Question, attempt: number, signal: AbortSignal): Promise<OpenAnswer> {
    const { http, rate, clock } = this.#options;
    await rate.pass(question.route, signal);
    const startMs = clock.nowMs();
    let answer: HttpAnswer | undefined;
    let isDone = false;
    const done = async (error?: unknown): Promise<void> => {
      if (isDone) return;
      isDone = true;
      await answer?.[Symbol.asyncDispose]();
      this.#options.observer.onRequest({
        route: question.route,
        status: answer?.status,
        durationMs: clock.nowMs() - startMs,
        bytes: answer?.wireBytes() ?? 0,
        attempt,
        errorCode: error === undefined ? undefined : errorCode(error),
      });
    };
    try {
      answer = await http.get(question, signal);
      const emptyMs = exhaustedForMs(answer.headers);
      if (emptyMs !== undefined) rate.quiet(emptyMs);
      if (answer.status !== 200) throw await this.#refusal(question, answer, signal);
      return { ...answer, done };
    } catch (error) {
      await done(error);
      throw error;
    }
  }

  async #refusal(question: Question, answer: HttpAnswer, signal: AbortSignal): Promise<Error> {
    const { status, headers } = answer;
    const body = await readStart(answer.body, ERROR_BODY_BYTES_MAX);
    signal.throwIfAborted();
    const error = answerError(question.action, whereOf(question.url), { status, headers, body });
    if (error instanceof RetryableError && error.code === 'SOURCE_BANNED') {
      await this.#options.rate.ban(error.retryAfterMs ?? BAN_MS);
    }
    return error;
  }
}
