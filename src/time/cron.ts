/**
 * Parses cron patterns strictly: five fields (minute, hour, day of the month, month, day
 * of the week), or six with seconds first. Typos are rejected rather than becoming a
 * different schedule.
 *
 * A field may contain numbers, names of months and weekdays, `*`, lists, ranges and
 * steps; `?` in either day field; and `L` for the last day of a month.
 */

/** The local times that a pattern matches. They become instants only in a time zone. */
export interface CronPattern {
  /** The local times of a matching day, in milliseconds since its midnight; ascending. */
  readonly timesOfDay: readonly number[];
  /**
   * Whether the pattern matches every hour. It then means instants rather than local
   * times of day.
   */
  readonly isHourly: boolean;
  /**
   * Returns whether the pattern matches a day.
   * @param month 1 to 12
   */
  matchesDay(year: number, month: number, day: number): boolean;
}

interface FieldRule {
  readonly min: number;
  readonly max: number;
  readonly names?: readonly string[];
  /** Whether `?` may be used for every value. */
  readonly isDay?: boolean;
}

interface Field {
  readonly values: ReadonlySet<number>;
  /** Whether the field matches every value, by `*` or `?`. */
  readonly isAny: boolean;
  /** Whether the field includes `L`, the last day of the month. */
  readonly hasLast: boolean;
}

const MONTHS = 'JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC'.split(' ');
const WEEKDAYS = 'SUN MON TUE WED THU FRI SAT'.split(' ');

const SECOND: FieldRule = { min: 0, max: 59 };
const MINUTE: FieldRule = { min: 0, max: 59 };
const HOUR: FieldRule = { min: 0, max: 23 };
const DAY_OF_MONTH: FieldRule = { min: 1, max: 31, isDay: true };
const MONTH: FieldRule = { min: 1, max: 12, names: MONTHS };
// Both 0 and 7 mean Sunday.
const DAY_OF_WEEK: FieldRule = { min: 0, max: 7, names: WEEKDAYS, isDay: true };

/** Names for common patterns. */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ['@yearly', '0 0 1 1 *'],
  ['@annually', '0 0 1 1 *'],
  ['@monthly', '0 0 1 * *'],
  ['@weekly', '0 0 * * 0'],
  ['@daily', '0 0 * * *'],
  ['@hourly', '0 * * * *'],
]);

const HOURS_OF_DAY = 24;
/**
 * How many years to search for a matching day; there is a leap day at least every eight
 * years.
 */
const YEARS_TRIED = 8;
const FIRST_YEAR_TRIED = 2024;

/**
 * Parses a pattern.
 * @returns undefined if the string is not a pattern, or names a day that does not exist
 */
export function parseCron(text: string): CronPattern | undefined {
  const trimmed = text.trim();
  const fields = (ALIASES.get(trimmed.toLowerCase()) ?? trimmed).split(/\s+/);
  if (fields.length === 5) fields.unshift('0');
  if (fields.length !== 6) return undefined;

  const [secondText = '', minuteText = '', hourText = ''] = fields;
  const [dayText = '', monthText = '', weekdayText = ''] = fields.slice(3);
  const second = parseField(secondText, SECOND);
  const minute = parseField(minuteText, MINUTE);
  const hour = parseField(hourText, HOUR);
  const day = parseField(dayText, DAY_OF_MONTH);
  const month = parseField(monthText, MONTH);
  const weekday = parseField(weekdayText, DAY_OF_WEEK);
  if (!second || !minute || !hour || !day || !month || !weekday)
    return undefined;

  const pattern: CronPattern = {
    timesOfDay: listTimes(hour, minute, second),
    isHourly: hour.values.size === HOURS_OF_DAY,
    matchesDay: dayMatcher(day, month, weekday),
  };
  return comesEver(pattern) ? pattern : undefined;
}

function listTimes(hour: Field, minute: Field, second: Field): number[] {
  const times: number[] = [];

  for (const h of ascending(hour.values))
    for (const m of ascending(minute.values))
      for (const s of ascending(second.values))
        times.push(((h * 60 + m) * 60 + s) * 1_000);

  return times;
}

function ascending(values: ReadonlySet<number>): number[] {
  return [...values].toSorted((a, b) => a - b);
}

/**
 * Returns a function that matches days. As in any cron, if both day fields are
 * restricted, a match of either is enough.
 */
function dayMatcher(
  day: Field,
  month: Field,
  weekday: Field,
): CronPattern['matchesDay'] {
  return (year, monthNumber, dayNumber) => {
    if (!month.values.has(monthNumber)) return false;

    const isLast = dayNumber === daysInMonth(year, monthNumber);
    const isDay = day.values.has(dayNumber) || (day.hasLast && isLast);
    const weekdayNumber = new Date(
      Date.UTC(year, monthNumber - 1, dayNumber),
    ).getUTCDay();
    const isWeekday =
      weekday.values.has(weekdayNumber) ||
      (weekdayNumber === 0 && weekday.values.has(7));

    if (day.isAny) return isWeekday;
    if (weekday.isAny) return isDay;
    return isDay || isWeekday;
  };
}

function daysInMonth(year: number, month: number): number {
  return new Date(Date.UTC(year, month, 0)).getUTCDate();
}

function comesEver(pattern: CronPattern): boolean {
  for (
    let year = FIRST_YEAR_TRIED;
    year < FIRST_YEAR_TRIED + YEARS_TRIED;
    year += 1
  )
    for (let month = 1; month <= 12; month += 1)
      for (let day = 1; day <= daysInMonth(year, month); day += 1)
        if (pattern.matchesDay(year, month, day)) return true;

  return false;
}

function parseField(text: string, rule: FieldRule): Field | undefined {
  const values = new Set<number>();
  let hasLast = false;

  for (const part of text.split(',')) {
    if (part === 'L' && rule === DAY_OF_MONTH) {
      hasLast = true;
      continue;
    }

    const range = parseRange(part, rule);
    if (range === undefined) return undefined;
    for (let value = range.first; value <= range.last; value += range.step)
      values.add(value);
  }

  const isAny = text === '*' || (text === '?' && rule.isDay === true);
  return { values, isAny, hasLast };
}

interface ValueRange {
  readonly first: number;
  readonly last: number;
  readonly step: number;
}

/**
 * Parses `7`, `1-5` or `*`, each optionally with a step: `*` + `/15`, `10/15`, `8-18/2`.
 */
function parseRange(part: string, rule: FieldRule): ValueRange | undefined {
  const match = /^(?:([*?])|(\w+)(?:-(\w+))?)(?:\/(\d+))?$/.exec(part);
  if (match === null) return undefined;

  const [, any, firstText = '', lastText, stepText] = match;
  const step = stepText === undefined ? 1 : Number(stepText);
  if (step === 0 || step > rule.max) return undefined;

  if (any !== undefined) {
    if (any === '?' && (rule.isDay !== true || stepText !== undefined))
      return undefined;
    return { first: rule.min, last: rule.max, step };
  }

  const first = parseValue(firstText, rule);
  if (first === undefined) return undefined;
  // With a step, a single value is the start of a range that ends at the field's
  // maximum.
  if (lastText === undefined)
    return { first, last: stepText === undefined ? first : rule.max, step };

  const last = parseValue(lastText, rule);
  return last === undefined || last < first ? undefined : { first, last, step };
}

function parseValue(
  text: string,
  { min, max, names }: FieldRule,
): number | undefined {
  const index = names?.indexOf(text.toUpperCase()) ?? -1;
  if (index >= 0) return index + min;
  if (!/^\d{1,2}$/.test(text)) return undefined;

  const value = Number(text);
  return value >= min && value <= max ? value : undefined;
}
