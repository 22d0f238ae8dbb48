/**
 * Where stages go on after a failure, and the rate that all workers share. Postgres holds the truth: nothing
 * here says what is done, covered or free.
 */
import {
  isRetryable,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';

/** A larger value is refused. */
export const VALUE_CHARS_MAX = 1_048_576;
/**
 * The rate is a schedule of single requests (GCRA): each reservation takes the next time, an interval after the one
 * before. Unused time is given back only as a small burst, since a store that lost its memory gives it once more.
 */
export const BURST_MICROS = 250_000;
/** A schedule further ahead than this means that the clock was set back. */
export const AHEAD_MAX_MICROS = 600_000_000;
/** In an outage the store is tried this often, so that not every call pays its timeout. */
const ASK_AGAIN_MS = 1_000;
/** Without the store workers cannot share the rate: each takes this part of it. */
const RATE_SHARE = 4;

/**
 * Hints that may vanish or go back in time at any moment: losing one costs at most the page in flight.
 *
 * Every call throws UnreachableError `STATE_UNREACHABLE` or RetryableError where the store is away,
 * PermanentError where it refuses for good, and ends within a few seconds either way.
 */
export interface ResumeState {
  /** @returns what JSON.parse makes of the value; undefined where there is none (any more), or an unreadable one */
  get(key: string): Promise<unknown>;
  /**
   * Replaces the value, which JSON must be able to hold, and forgets it after `ttlMs`.
   * @throws PermanentError `STATE_VALUE` where it is no JSON or too large
   */
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
  /**
   * Reserves the next request of a budget that all processes share, by the store's clock.
   * @returns how long to wait before sending it; a reservation that is not used is lost
   */
  reserve(budget: string, ratePerSecond: number): Promise<{ waitMs: number }>;
  close(): Promise<void>;
}

/** What a store of its own kind does of it: values are text, errors its own. */
interface Store extends Pick<ResumeState, 'close'> {
  /** For messages: its name, and where to look when it refuses for good. */
  readonly name: string;
  readonly advice: string;
  read(key: string): Promise<string | null | undefined>;
  write(key: string, text: string, ttlMs: number): Promise<unknown>;
  /** @returns microseconds to wait */
  take(budget: string, intervalMicros: number): Promise<number>;
  /** What the store itself answered as an error; undefined where it was not reached. */
  refusal(
    error: unknown,
  ): { readonly code: string; readonly isRetryable: boolean } | undefined;
}

/** Resume state in a store: values are JSON, errors are ours. */
export function keepIn(store: Store): ResumeState {
  const call = async <Result>(
    action: string,
    work: () => Promise<Result>,
  ): Promise<Result> => {
    try {
      return await work();
    } catch (error) {
      const refusal = store.refusal(error);
      const state = error instanceof Error ? error.message : String(error);
      const details = { code: refusal?.code ?? 'STATE_UNREACHABLE', cause: error };
      if (refusal === undefined)
        throw new UnreachableError(
          `Cannot ${action}: ${store.name} is not reachable (${state})`,
          details,
        );
      const message = `Cannot ${action}: ${store.name} answers ${state}`;
      if (refusal.isRetryable) throw new RetryableError(message, details);
      throw new PermanentError(`${message}; ${store.advice}`, details);
    }
  };
  return {
    get: async (key) => {
      const text = await call(`read ${key}`, () => store.read(key));
      try {
        return JSON.parse(text ?? '');
      } catch {
        return undefined;
      }
    },
    set: async (key, value, ttlMs) => {
      const text: string | undefined = JSON.stringify(value);
      if (text === undefined || text.length > VALUE_CHARS_MAX) {
        const state =
          text === undefined
            ? 'JSON cannot hold it'
            : `${text.length} characters are too many`;
        const message = `Cannot remember ${key}: ${state}; give at most ${VALUE_CHARS_MAX} characters of JSON`;
        throw new PermanentError(message, { code: 'STATE_VALUE', meta: { key } });
      }
      await call(`remember ${key}`, () => store.write(key, text, ttlMs));
    },
    reserve: async (budget, ratePerSecond) => {
      const take = () => store.take(budget, 1_000_000 / ratePerSecond);
      const waitMicros = await call(`reserve a request of ${budget}`, take);
      // Timers count whole milliseconds: rounded up, never too early.
      return { waitMs: Math.ceil(Math.max(0, waitMicros) / 1000) };
    },
    close: () => store.close(),
  };
}

/**
 * `inner`, but in an outage `get` knows nothing, `set` does nothing, and `reserve` paces this process alone at a
 * quarter of the rate. Each outage is logged once, and its end. What the store refuses for good is still thrown.
 * @param nowMs a clock that never goes back
 */
export function tolerateOutages(
  inner: ResumeState,
  log: Pick<Log, 'info' | 'warn'>,
  nowMs = () => performance.now(),
): ResumeState {
  let awaySinceMs: number | undefined;
  let askAgainAtMs = 0;
  let nextAloneMs = 0;
  const ask = async <Answer>(
    call: () => Promise<Answer>,
    instead: () => Answer,
  ): Promise<Answer> => {
    if (awaySinceMs !== undefined && nowMs() < askAgainAtMs) return instead();
    // In an outage one caller tries the store; the others do not wait for it.
    askAgainAtMs = nowMs() + ASK_AGAIN_MS;
    try {
      const answer = await call();
      if (awaySinceMs !== undefined) {
        log.info({ awayMs: Math.round(nowMs() - awaySinceMs) }, 'Resume state is back');
        awaySinceMs = undefined;
      }
      return answer;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      askAgainAtMs = nowMs() + ASK_AGAIN_MS;
      if (awaySinceMs === undefined)
        log.warn({ err: error }, 'Resume state is away, work goes on without it');
      awaySinceMs ??= nowMs();
      return instead();
    }
  };
  const reserveAlone = (ratePerSecond: number): { waitMs: number } => {
    const atMs = Math.max(nowMs(), nextAloneMs);
    nextAloneMs = atMs + (1000 * RATE_SHARE) / ratePerSecond;
    return { waitMs: Math.ceil(atMs - nowMs()) };
  };
  const nothing = (): undefined => undefined;
  return {
    ...inner,
    get: (key) => ask(() => inner.get(key), nothing),
    set: (...entry) => ask(() => inner.set(...entry), nothing),
    reserve: (...request) =>
      ask(
        () => inner.reserve(...request),
        () => reserveAlone(request[1]),
      ),
  };
}
