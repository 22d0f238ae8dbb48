/** Small values that most tests need: a signal that never aborts, ids, instants. */
import { parseInstant, type Micros } from '../../src/time/time.ts';

const HEX_ID_BYTES = 32;

/** A signal that never aborts, for calls whose cancellation is not under test. */
export const NEVER_ABORTED: AbortSignal = new AbortController().signal;

/** A party or asset id of 64 hex digits that repeats one byte: `hexId('ab')`. */
export function hexId(byte: string): string {
  return byte.repeat(HEX_ID_BYTES);
}

/**
 * Microseconds since 1970 of an RFC 3339 time: `instant('2023-05-10T00:00:00Z')`.
 * @throws TypeError if the text is not a time
 */
export function instant(text: string): Micros {
  const micros = parseInstant(text);
  if (micros === undefined) throw new TypeError(`not an instant: ${text}`);
  return micros;
}
