/**
 * Where stages go on after a failure, and the rate that all workers share. Postgres holds the truth: nothing
 * here says what is done, covered or free.
 */
import { PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';
import { type RateSchedule, rateScheduleOf, wholeMs } from './rate-schedule.ts';

/**
 * Hints that may vanish or go back in time at any moment: losing one costs at most the page in flight.
 *
 * Every call throws UnreachableError `STATE_UNREACHABLE` or RetryableError where the store is away,
 * PermanentError where it refuses for good, and ends within a few seconds either way.
 */
export interface ResumeState {
  /** @returns what JSON.parse makes of the value; undefined where there is none (any more) */
  get(key: string): Promise<unknown>;
  /** Replaces the value, which JSON must be able to hold, and forgets it after `ttlMs`. */
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
  /**
   * Reserves the next request of a budget that all processes share, by the store's clock.
   * @returns how long to wait before sending it; a reservation that is not used is lost
   */
  reserve(budget: string, ratePerSecond: number): Promise<{ waitMs: number }>;
  close(): Promise<void>;
}

export const KEY_CHARS_MAX = 512;
/** A larger value is refused. */
export const VALUE_CHARS_MAX = 1_048_576;

/** An error that the store itself answered. */
interface Refusal {
  readonly code: string;
  readonly meta: Readonly<Record<string, unknown>>;
  readonly isRetryable: boolean;
}

/** What the stores have in common: keys are checked, values are JSON, errors are ours. */
export abstract class StoredState implements ResumeState {
  /** For messages: its name, and where to look when it refuses for good. */
  protected abstract readonly store: string;
  protected abstract readonly advice: string;

  protected abstract read(key: string): Promise<string | null | undefined>;
  protected abstract write(key: string, text: string, ttlMs: number): Promise<void>;
  /** @returns microseconds to wait */
  protected abstract take(budget: string, schedule: RateSchedule): Promise<number>;
  /** @returns undefined where the store was not reached */
  protected abstract refusal(error: unknown): Refusal | undefined;
  abstract close(): Promise<void>;

  async get(key: string): Promise<unknown> {
    return decodeValue(await this.#call(`read ${key}`, () => this.read(checkedKey(key))));
  }

  async set(key: string, value: unknown, ttlMs: number): Promise<void> {
    const text = encodeValue(key, value);
    await this.#call(`remember ${key}`, () => this.write(checkedKey(key), text, ttlMs));
  }

  async reserve(budget: string, ratePerSecond: number): Promise<{ waitMs: number }> {
    const schedule = rateScheduleOf(ratePerSecond);
    const take = () => this.take(checkedKey(budget), schedule);
    return { waitMs: wholeMs(Math.max(0, await this.#call(`reserve a request of ${budget}`, take))) };
  }

  async #call<Result>(action: string, call: () => Promise<Result>): Promise<Result> {
    try {
      return await call();
    } catch (error) {
      if (error instanceof PermanentError) throw error;
      throw this.#describe(action, error);
    }
  }

  #describe(action: string, error: unknown): Error {
    const refusal = this.refusal(error);
    const state = error instanceof Error ? error.message : String(error);
    if (refusal === undefined) {
      const details = { code: 'STATE_UNREACHABLE', cause: error };
      return new UnreachableError(`Cannot ${action}: ${this.store} is not reachable (${state})`, details);
    }
    const { isRetryable, ...known } = refusal;
    const message = `Cannot ${action}: ${this.store} answers ${state}`;
    return isRetryable
      ? new RetryableError(message, { ...known, cause: error })
      : new PermanentError(`${message}; ${this.advice}`, { ...known, cause: error });
  }
}

/** @throws PermanentError `STATE_KEY` */
function checkedKey(key: string): string {
  if (key !== '' && key.length <= KEY_CHARS_MAX) return key;
  const state = `a resume state key of ${key.length} characters`;
  throw new PermanentError(`Cannot use ${state}; give 1 to ${KEY_CHARS_MAX}`, { code: 'STATE_KEY' });
}

/** @throws PermanentError `STATE_VALUE` where it is no JSON or too large */
function encodeValue(key: string, value: unknown): string {
  const text: string | undefined = JSON.stringify(value);
  if (text !== undefined && text.length <= VALUE_CHARS_MAX) return text;
  const state = text === undefined ? 'JSON cannot hold it' : `${text.length} characters are too many`;
  throw new PermanentError(
    `Cannot remember ${key}: ${state}; give at most ${VALUE_CHARS_MAX} characters of JSON`,
    { code: 'STATE_VALUE', meta: { key } },
  );
}

/** An unreadable value counts as missing. */
function decodeValue(text: string | null | undefined): unknown {
  try {
    return JSON.parse(text ?? '');
  } catch {
    return undefined;
  }
}
