/** Parses a time range from options: a start and an end, or a whole month. */
import { formatInstant, type Micros, nowMicros } from './time.ts';
import {
  readTypedMonth,
  readTypedTime,
  TYPED_MONTH_FORM,
  TYPED_TIME_FORMS,
} from './typed-time.ts';

/** The strings that the user typed; the range is open on a side that is absent. */
export interface GivenRange {
  readonly start?: string | undefined;
  readonly end?: string | undefined;
  /** A month, instead of a start and an end. */
  readonly month?: string | undefined;
}

/** The names of the two values as their caller knows them, for messages: `--since`. */
export interface RangeOptionNames {
  readonly start: string;
  readonly end: string;
}

export interface ReadRange {
  readonly start: Micros | undefined;
  /** The end, exclusive; undefined if the range reaches the present. */
  readonly end: Micros | undefined;
  /** One line for each problem. If there are any, the range must not be used. */
  readonly problems: readonly string[];
}

const SHOWN_MAX = 80;

/**
 * Parses a range. A day, a month or a year means its first instant, both as a start and
 * as an (exclusive) end. If `month` is the current month, the range has no end.
 */
export function readTypedRange(
  given: GivenRange,
  names: RangeOptionNames,
  now: Micros,
): ReadRange {
  return given.month === undefined
    ? readBothEnds(given, names, now)
    : readMonth(given, given.month, names, now);
}

/** A range as instants in RFC 3339, as Postgres and the API take them. */
export interface TypedInstants {
  readonly start: string | undefined;
  /** The end, exclusive. */
  readonly end: string | undefined;
  /** One line for each problem. If there are any, the range must not be used. */
  readonly problems: readonly string[];
}

/** Parses a range by the current time, and formats its ends. */
export function readTypedInstants(
  given: GivenRange,
  names: RangeOptionNames,
): TypedInstants {
  const { start, end, problems } = readTypedRange(given, names, nowMicros());
  return {
    start: start === undefined ? undefined : formatInstant(start),
    end: end === undefined ? undefined : formatInstant(end),
    problems,
  };
}

function readBothEnds(
  given: GivenRange,
  names: RangeOptionNames,
  now: Micros,
): ReadRange {
  const problems: string[] = [];
  const read = (side: 'start' | 'end'): Micros | undefined => {
    const text = given[side];
    if (text === undefined) return undefined;
    const time = readTypedTime(text, now);
    if (time === undefined)
      problems.push(
        `${names[side]}: ${quote(text)} is not a time that can be read; use ` +
          TYPED_TIME_FORMS,
      );
    return time?.from;
  };
  const start = read('start');
  const end = read('end');
  if (start !== undefined && end !== undefined && start >= end)
    problems.push(
      `${names.start}, ${names.end}: ${formatInstant(start)} is not before ` +
        `${formatInstant(end)}; give a range that is not empty`,
    );
  return { start, end, problems };
}

function readMonth(
  { start, end }: GivenRange,
  text: string,
  names: RangeOptionNames,
  now: Micros,
): ReadRange {
  const month = readTypedMonth(text);
  const problems: string[] = [];
  if (start !== undefined || end !== undefined)
    problems.push(
      `--month: is a whole range already; leave out ${names.start} and ` +
        `${names.end}, or --month`,
    );
  if (month === undefined)
    problems.push(
      `--month: ${quote(text)} is not a month; give ${TYPED_MONTH_FORM}`,
    );
  if (month !== undefined && month.from > now)
    problems.push(`--month: ${text} has not begun; give a month that has`);
  const isOver = month !== undefined && month.to <= now;
  return { start: month?.from, end: isOver ? month.to : undefined, problems };
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, SHOWN_MAX));
}
