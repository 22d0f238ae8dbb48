/**
 * Where stages go on after a failure, and the rate that all workers share. Postgres holds the truth: nothing
 * here says what is done, covered or free.
 */
import { PermanentError } from '../core/errors.ts';

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

/** @throws PermanentError `STATE_KEY` */
export function checkedKey(prefix: string, key: string): string {
  if (key !== '' && key.length <= KEY_CHARS_MAX) return `${prefix}:${key}`;
  throw new PermanentError(
    `Cannot use a resume state key of ${key.length} characters; give 1 to ${KEY_CHARS_MAX}`,
    { code: 'STATE_KEY' },
  );
}

/** @throws PermanentError `STATE_VALUE` where it is no JSON or too large */
export function encodeValue(key: string, value: unknown): string {
  const text: string | undefined = JSON.stringify(value);
  if (text !== undefined && text.length <= VALUE_CHARS_MAX) return text;
  const state = text === undefined ? 'JSON cannot hold it' : `${text.length} characters are too many`;
  throw new PermanentError(
    `Cannot remember ${key}: ${state}; give at most ${VALUE_CHARS_MAX} characters of JSON`,
    {
      code: 'STATE_VALUE',
      meta: { key },
    },
  );
}

/** An unreadable value counts as missing. */
export function decodeValue(text: string | null | undefined): unknown {
  if (text === null || text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
