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
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(Z|z|[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?)?)?$/;

/**
 * Reads an RFC 3339 instant, a plain date (midnight UTC) or Postgres's timestamptz text
 * (`2023-05-01 10:00:00.123456+05:30`). Digits beyond the microsecond must be zero.
 * @returns undefined where the text is none of these or names a day that does not exist
 */
export function parseInstant(text: string): Micros | undefined {
  const match = RFC3339.exec(text);
  if (match === null) return undefined;
  const [, year, month, day, hour = '00', minute = '00', second = '00', fraction = '', zone] = match;
  if (match[4] !== undefined && zone === undefined) return undefined;
  const offsetSeconds = zoneSeconds(zone ?? 'Z');
  if (offsetSeconds === undefined || fraction.slice(6).replaceAll('0', '') !== '') return undefined;
  if (Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) return undefined;
  const dayMs = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const date = new Date(dayMs);
  if (date.getUTCMonth() !== Number(month) - 1 || date.getUTCDate() !== Number(day)) return undefined;
  const seconds = Number(hour) * 3600 + Number(minute) * 60 + Number(second) - offsetSeconds;
  return (
    BigInt(dayMs) * 1000n + BigInt(seconds) * SECOND_MICROS + BigInt(fraction.slice(0, 6).padEnd(6, '0'))
  );
}

function zoneSeconds(zone: string): number | undefined {
  if (zone === 'Z' || zone === 'z') return 0;
  const digits = zone.slice(1).replaceAll(':', '').padEnd(6, '0');
  const [hours, minutes, seconds] = [digits.slice(0, 2), digits.slice(2, 4), digits.slice(4, 6)].map(Number);
  if (hours === undefined || minutes === undefined || seconds === undefined) return undefined;
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

/** The wall clock, for what is shown and recorded; durations use `performance.now()`. */
export function nowMicros(): Micros {
  return BigInt(Date.now()) * 1000n;
}
