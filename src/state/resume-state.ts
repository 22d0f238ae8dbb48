/**
 * Resume state: the points from which stages continue after a failure, and the request
 * rate that all workers share. It is only an optimization; the tables in Postgres decide
 * what is done or covered.
 */
import {
  isRetryable,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';

/** Maximum length of a value, in characters; larger values are rejected. */
export const VALUE_CHARS_MAX = 1_048_576;
/**
 * How much unused time may be saved up for a burst. The rate is a schedule of single
 * requests (GCRA): each reservation takes the next slot, one interval after the last. The
 * burst is small, because a store that loses its data also forgets that the burst was
 * used, and grants another one.
 */
export const BURST_MICROS = 250_000;
/** If the next slot is further ahead than this, the clock was set back. */
export const AHEAD_MAX_MICROS = 600_000_000;
/**
 * How long to wait between attempts to reach the store during an outage, so that not
 * every call has to run into its timeout.
 */
const TRY_AGAIN_MS = 1_000;
/**
 * Without the store, workers cannot share the rate, so each uses the rate divided by this
 * number.
 */
const RATE_SHARE = 4;

/**
 * Values that may vanish or revert to an earlier state at any moment. Losing a value
 * costs at most the page in flight.
 *
 * Every call ends within a few seconds. It throws UnreachableError `STATE_UNREACHABLE` or
 * RetryableError if the store is unavailable, and PermanentError if the store returns a
 * permanent error.
 */
export interface ResumeState {
  /**
   * Reads a value.
   * @returns the parsed value; undefined if it does not exist, has expired, or is not
   *   JSON
   */
  get(key: string): Promise<unknown>;
  /**
   * Stores a value as JSON for `ttlMs`, and replaces any earlier one.
   * @throws PermanentError `STATE_VALUE` if the value cannot be serialized as JSON, or is
   *   too large
   */
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
  /**
   * Reserves the next request of a budget that all processes share. The store's clock
   * decides when the request may be sent. An unused reservation is lost.
   * @returns how long to wait before sending the request
   */
  reserve(budget: string, ratePerSecond: number): Promise<{ waitMs: number }>;
  close(): Promise<void>;
}

/**
 * The operations that each kind of store provides. Values are strings, and errors are the
 * store's own.
 */
export interface TextStore extends Pick<ResumeState, 'close'> {
  /** The store's name for messages. */
  readonly name: string;
  /** Advice for messages about the store's permanent errors. */
  readonly advice: string;
  read(key: string): Promise<string | null | undefined>;
  write(key: string, text: string, ttlMs: number): Promise<unknown>;
  /**
   * Reserves the next request.
   * @returns how many microseconds to wait for it
   */
  take(budget: string, intervalMicros: number): Promise<number>;
  /**
   * Describes an error reported by the store itself; undefined if the store was not
   * reached.
   */
  refusal(
    error: unknown,
  ): { readonly code: string; readonly isRetryable: boolean } | undefined;
}

/**
 * Builds resume state on top of a string store: values are serialized as JSON, and the
 * store's errors are mapped to ours.
 */
export function keepIn(store: TextStore): ResumeState {
  const call = async <Result>(
    action: string,
    work: () => Promise<Result>,
  ): Promise<Result> => {
    try {
      return await work();
    } catch (error) {
      const refusal = store.refusal(error);
      const state = error instanceof Error ? error.message : String(error);
      const details = {
        code: refusal?.code ?? 'STATE_UNREACHABLE',
        cause: error,
      };
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
        const message =
          `Cannot remember ${key}: ${state}; ` +
          `give at most ${VALUE_CHARS_MAX} characters of JSON`;
        throw new PermanentError(message, {
          code: 'STATE_VALUE',
          meta: { key },
        });
      }
      await call(`remember ${key}`, () => store.write(key, text, ttlMs));
    },
    reserve: async (budget, ratePerSecond) => {
      const take = () => store.take(budget, 1_000_000 / ratePerSecond);
      const waitMicros = await call(`reserve a request of ${budget}`, take);
      // Timers count whole milliseconds, so round up lest a request be sent too early.
      return { waitMs: Math.ceil(Math.max(0, waitMicros) / 1000) };
    },
    close: () => store.close(),
  };
}

/**
 * Wraps resume state so that work continues during an outage: `get` returns undefined,
 * `set` does nothing, and `reserve` limits this process to a quarter of the rate. The
 * start and end of each outage are logged. Permanent errors are still thrown.
 * @param nowMs a clock that never goes back
 */
export function tolerateOutages(
  inner: ResumeState,
  log: Pick<Log, 'info' | 'warn'>,
  nowMs = () => performance.now(),
): ResumeState {
  let awaySinceMs: number | undefined;
  let tryAgainAtMs = 0;
  let nextAloneMs = 0;
  const callOrElse = async <Answer>(
    call: () => Promise<Answer>,
    instead: () => Answer,
  ): Promise<Answer> => {
    if (awaySinceMs !== undefined && nowMs() < tryAgainAtMs) return instead();
    // During an outage, one caller tries the store; the others do not wait for the
    // attempt.
    tryAgainAtMs = nowMs() + TRY_AGAIN_MS;
    try {
      const answer = await call();
      if (awaySinceMs !== undefined) {
        log.info(
          { awayMs: Math.round(nowMs() - awaySinceMs) },
          'Resume state is back',
        );
        awaySinceMs = undefined;
      }
      return answer;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      tryAgainAtMs = nowMs() + TRY_AGAIN_MS;
      if (awaySinceMs === undefined)
        log.warn(
          { err: error },
          'The resume state is unavailable; work continues without it',
        );
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
    get: (key) => callOrElse(() => inner.get(key), nothing),
    set: (...entry) => callOrElse(() => inner.set(...entry), nothing),
    reserve: (...request) =>
      callOrElse(
        () => inner.reserve(...request),
        () => reserveAlone(request[1]),
      ),
  };
}
