/**
 * An instant in whole microseconds since 1970, the ledger's precision, as a bigint.
 * Instants are never converted to a JavaScript number; only whole seconds go through a
 * `Date`.
 */
export type Micros = bigint;

export const SECOND_MICROS = 1_000_000n;
export const DAY_MICROS = 86_400n * SECOND_MICROS;
/** The beginning of every ledger, and the default start of an export. */
export const BEGINNING: Micros = 0n;

/**
 * Matches RFC 3339. Digits beyond the microsecond must be zero. The UTC offset is
 * limited to 18 hours, which is more than any time zone has.
 */
const RFC3339 =
  /^(\d{4}-\d\d-(\d\d))(?:[Tt ]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d{1,6})0{0,3})?(?:[Zz]|([+-])(0\d|1[0-8])(?::?([0-5]\d)(?::?([0-5]\d))?)?))?$/;

/**
 * Parses an RFC 3339 instant, a plain date (midnight UTC) or Postgres's timestamptz
 * output (`2023-05-01 10:00:00.123456+05:30`).
 * @returns undefined if the string has none of these formats, or names a day that does
 *   not exist
 */
export function parseInstant(text: string): Micros | undefined {
  const match = RFC3339.exec(text);
  if (match === null) return undefined;
  const [
    ,
    date,
    day,
    time = '00:00:00',
    fraction = '',
    sign = '+',
    hours = 0,
    minutes = 0,
    seconds = 0,
  ] = match;
  const local = new Date(`${date}T${time}Z`);
  // `Date` turns a day that does not exist into one of the next month.
  if (local.getUTCDate() !== Number(day)) return undefined;
  const offsetSeconds =
    Number(`${sign}1`) *
    (Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds));
  const utcSeconds = BigInt(local.getTime() / 1000 - offsetSeconds);
  return utcSeconds * SECOND_MICROS + BigInt(fraction.padEnd(6, '0'));
}

/**
 * Parses an instant that was validated when it was written.
 * @throws RangeError if the string is not an instant
 */
export function readInstant(text: string): Micros {
  const instant = parseInstant(text);
  if (instant === undefined) throw new RangeError(`not an instant: ${text}`);
  return instant;
}

/** Formats an instant as `2023-05-10T00:00:00.123456Z`: always UTC, always six digits. */
export function formatInstant(instant: Micros): string {
  const second = floorSecond(instant);
  const fraction = (instant - second).toString().padStart(6, '0');
  return `${new Date(Number(second / 1000n)).toISOString().slice(0, 19)}.${fraction}Z`;
}

/**
 * Formats an instant as `20230510T000000Z`, the format used in object keys.
 * @throws RangeError if the instant is not a whole second
 */
export function formatCompact(instant: Micros): string {
  if (floorSecond(instant) !== instant)
    throw new RangeError(`not a whole second: ${instant}`);
  return formatInstant(instant).slice(0, 19).replaceAll(/[-:]/g, '') + 'Z';
}

export function floorSecond(instant: Micros): Micros {
  const rest = instant % SECOND_MICROS;
  return rest < 0n ? instant - rest - SECOND_MICROS : instant - rest;
}

export function ceilSecond(instant: Micros): Micros {
  const floor = floorSecond(instant);
  return floor === instant ? instant : floor + SECOND_MICROS;
}

/** Returns the month of an instant in UTC, as `2023-05`. */
export function monthOf(instant: Micros): string {
  return formatInstant(instant).slice(0, 'YYYY-MM'.length);
}

/** Returns the first instant of an instant's month, in UTC. */
export function monthStart(instant: Micros): Micros {
  return readInstant(`${monthOf(instant)}-01`);
}

/**
 * Reads the wall clock, for times that are shown or recorded. Measure durations with
 * `performance.now()`.
 */
export function nowMicros(): Micros {
  return BigInt(Date.now()) * 1000n;
}
