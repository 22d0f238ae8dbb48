/**
 * Instants are whole microseconds since 1970 in a bigint: the precision of the ledger. They never
 * pass through a JavaScript number or `Date` arithmetic.
 */
export type Micros = bigint;

export const SECOND_MICROS = 1_000_000n;
export const DAY_MICROS = 86_400n * SECOND_MICROS;
/** The beginning of every ledger: an export "of all times" starts here. */
export const BEGINNING: Micros = 0n;

const RFC3339 =
  /^\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d(?::?\d\d(?::?\d\d)?)?))?$/;
const DATE_CHARS = 10;
const SECONDS_END = 19;
const MICROS_CHARS = 6;

/**
 * Reads an RFC 3339 instant, a plain date (midnight UTC) or Postgres's timestamptz text
 * (`2023-05-01 10:00:00.123456+05:30`). Digits beyond the microsecond must be zero.
 * @returns undefined where the text is none of these or names a day that does not exist
 */
export function parseInstant(text: string): Micros | undefined {
  // Every row of every list passes here: digits stand at fixed places and are read where they stand.
  if (!RFC3339.test(text)) return undefined;
  const daySeconds = secondsAt(digits(text, 0, 4), digits(text, 5, 7), digits(text, 8, 10));
  if (daySeconds === undefined) return undefined;
  if (text.length === DATE_CHARS) return BigInt(daySeconds) * SECOND_MICROS;
  const [hour, minute, second] = [digits(text, 11, 13), digits(text, 14, 16), digits(text, 17, SECONDS_END)];
  if (hour > 23 || minute > 59 || second > 59) return undefined;
  const zoneAt = text[SECONDS_END] === '.' ? endOfDigits(text, SECONDS_END + 1) : SECONDS_END;
  const isUtc = text.length === zoneAt + 1;
  const offsetSeconds = isUtc ? 0 : zoneSeconds(text.slice(zoneAt));
  const micros = microsOf(text, SECONDS_END + 1, zoneAt);
  if (offsetSeconds === undefined || micros === undefined) return undefined;
  const seconds = daySeconds + hour * 3600 + minute * 60 + second - offsetSeconds;
  return BigInt(seconds) * SECOND_MICROS + BigInt(micros);
}

/** An instant that was checked when it was written. @throws RangeError */
export function readInstant(text: string): Micros {
  const instant = parseInstant(text);
  if (instant === undefined) throw new RangeError(`not an instant: ${text}`);
  return instant;
}

const DAYS_BEFORE_MONTH = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];
/** From the first day of the year 0 to that of 1970. */
const DAYS_TO_1970 = 719_528;

/** Midnight UTC of a day, in whole seconds; undefined where there is no such day. */
function secondsAt(year: number, month: number, day: number): number | undefined {
  const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  const [before = Number.NaN, behind = Number.NaN] = [DAYS_BEFORE_MONTH[month - 1], DAYS_BEFORE_MONTH[month]];
  const isThere = day >= 1 && day <= behind - before + (isLeap && month === 2 ? 1 : 0);
  if (!isThere) return undefined;
  const leapDays = Math.ceil(year / 4) - Math.ceil(year / 100) + Math.ceil(year / 400);
  const days = year * 365 + leapDays + before + (isLeap && month > 2 ? 1 : 0) + day - 1;
  return (days - DAYS_TO_1970) * 86_400;
}

/** Below one second; undefined where there is more than microseconds can tell. */
function microsOf(text: string, from: number, end: number): number | undefined {
  const microsEnd = Math.min(end, from + MICROS_CHARS);
  if (microsEnd < end && digits(text, microsEnd, end) > 0) return undefined;
  const shown = Math.max(microsEnd - from, 0);
  return digits(text, from, from + shown) * 10 ** (MICROS_CHARS - shown);
}

/** The number between two places of a text that holds nothing but digits there: at most nine. */
function digits(text: string, from: number, end: number): number {
  let value = 0;
  for (let at = from; at < end; at += 1) value = value * 10 + text.charCodeAt(at) - ZERO;
  return value;
}

const ZERO = 48;

function endOfDigits(text: string, from: number): number {
  let at = from;
  while (at < text.length && text.charCodeAt(at) >= ZERO && text.charCodeAt(at) < ZERO + 10) at += 1;
  return at;
}

/** Of a zone in digits. */
function zoneSeconds(zone: string): number | undefined {
  const padded = zone.slice(1).replaceAll(':', '').padEnd(6, '0');
  const [hours, minutes, seconds] = [digits(padded, 0, 2), digits(padded, 2, 4), digits(padded, 4, 6)];
  if (hours > 18 || minutes > 59 || seconds > 59) return undefined;
  return (zone.startsWith('-') ? -1 : 1) * (hours * 3600 + minutes * 60 + seconds);
}

/** `2023-05-10T00:00:00.123456Z`: always UTC, always six digits. */
export function formatInstant(instant: Micros): string {
  const second = floorSecond(instant);
  const fraction = (instant - second).toString().padStart(6, '0');
  return `${new Date(Number(second / 1000n)).toISOString().slice(0, 19)}.${fraction}Z`;
}

/** `20230510T000000Z`, as object keys carry it; the instant must be a whole second. */
export function formatCompact(instant: Micros): string {
  if (floorSecond(instant) !== instant) throw new RangeError(`not a whole second: ${instant}`);
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

/** `2023-05`, in UTC. */
export function monthOf(instant: Micros): string {
  return formatInstant(instant).slice(0, 'YYYY-MM'.length);
}

/** The first instant of the month that an instant lies in. */
export function monthStart(instant: Micros): Micros {
  return readInstant(`${monthOf(instant)}-01`);
}

/** The wall clock, for what is shown and recorded; durations use `performance.now()`. */
export function nowMicros(): Micros {
  return BigInt(Date.now()) * 1000n;
}
