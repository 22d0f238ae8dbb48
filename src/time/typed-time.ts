/**
 * Parses dates and times as people type them for an option. Ambiguous formats, such as
 * `03/04/2026` or `-3m` (minutes or months), are rejected. A time without a zone is UTC.
 */
import {
  DAY_MICROS,
  type Micros,
  monthStart,
  parseInstant,
  SECOND_MICROS,
} from './time.ts';

/** The accepted formats, for messages. */
export const TYPED_TIME_FORMS =
  '2026-03-01T00:00:00Z, 2026-03-01, 2026-03, yesterday, or -30d (times are UTC)';
export const TYPED_MONTH_FORM = 'a month such as 2026-03';

/**
 * What a typed date or time stands for: an instant (`from` equals `to`), a day, a month
 * or a year.
 */
export interface TypedTime {
  /** The first instant of the named time. */
  readonly from: Micros;
  /** The first instant after the named time; equal to `from` if it is an instant. */
  readonly to: Micros;
}

const MINUTE_MICROS = 60n * SECOND_MICROS;
const AGO_MICROS: Readonly<Record<string, bigint>> = {
  min: MINUTE_MICROS,
  h: 60n * MINUTE_MICROS,
  d: DAY_MICROS,
  w: 7n * DAY_MICROS,
};
const AGO = /^-(\d{1,6})(min|h|d|w)$/;
/** A date and a time of day, with or without seconds and zone. */
const DAY_AND_TIME =
  /^(\d{4}-\d\d-\d\d)[t ](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?(z|[+-][\d:]{2,8})?$/;

/**
 * Parses an instant (RFC 3339, also without seconds or zone, `now`, `-30d`), a day
 * (`2026-03-01`, `today`, `yesterday`), a month (`2026-03`) or a year.
 * @param now the current time, to which relative times refer
 * @returns undefined if the string is not understood, or is ambiguous
 */
export function readTypedTime(
  text: string,
  now: Micros,
): TypedTime | undefined {
  const typed = text.trim().toLowerCase();
  const today = now - (((now % DAY_MICROS) + DAY_MICROS) % DAY_MICROS);
  if (typed === 'now') return instantAt(now);
  if (typed === 'today') return daysFrom(today);
  if (typed === 'yesterday') return daysFrom(today - DAY_MICROS);
  if (/^\d{4}$/.test(typed)) return readYear(typed);
  if (/^\d{4}-\d\d$/.test(typed)) return readTypedMonth(typed);
  if (/^\d{4}-\d\d-\d\d$/.test(typed)) {
    const start = parseInstant(typed);
    return start === undefined ? undefined : daysFrom(start);
  }
  return readInstantForms(typed, now);
}

function readInstantForms(typed: string, now: Micros): TypedTime | undefined {
  const [, count, unit = ''] = AGO.exec(typed) ?? [];
  const each = AGO_MICROS[unit];
  if (count !== undefined && each !== undefined)
    return instantAt(now - BigInt(count) * each);
  const [, day, minutes, seconds = ':00', zone = 'z'] =
    DAY_AND_TIME.exec(typed) ?? [];
  if (day === undefined) return undefined;
  const instant = parseInstant(`${day}t${minutes}${seconds}${zone}`);
  return instant === undefined ? undefined : instantAt(instant);
}

/**
 * Parses a month.
 * @returns undefined if the string is not a month such as `2026-03`
 */
export function readTypedMonth(text: string): TypedTime | undefined {
  const typed = text.trim();
  if (!/^\d{4}-\d\d$/.test(typed)) return undefined;
  const from = parseInstant(`${typed}-01`);
  if (from === undefined) return undefined;
  // The instant 32 days after the first of a month is always in the next month.
  return { from, to: monthStart(from + 32n * DAY_MICROS) };
}

function readYear(year: string): TypedTime | undefined {
  const from = parseInstant(`${year}-01-01`);
  const next = String(Number(year) + 1).padStart(4, '0');
  const to = parseInstant(`${next}-01-01`);
  return from === undefined || to === undefined ? undefined : { from, to };
}

function daysFrom(from: Micros): TypedTime {
  return { from, to: from + DAY_MICROS };
}

function instantAt(instant: Micros): TypedTime {
  return { from: instant, to: instant };
}
