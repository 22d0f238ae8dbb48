/** A range of instants, as the whole months in it and what is left at its ends. */
import { DAY_MICROS, formatInstant, type Micros, monthOf, monthStart } from '../../core/time.ts';

/** From the first day of any month, this many days on is in the next one. */
const DAYS_TO_NEXT_MONTH = 31n;

/** Half open; undefined: no limit. */
export interface InstantRange {
  readonly since: Micros | undefined;
  readonly until: Micros | undefined;
}

export interface MonthRange {
  /** `2023-05`, `end` exclusive; undefined where there is no limit. No `whole`: no month is whole. */
  readonly whole: { readonly first: string | undefined; readonly end: string | undefined } | undefined;
  /** Parts of months, half open, as RFC 3339 instants: two at most. */
  readonly rest: readonly { readonly month: string; readonly from: string; readonly to: string }[];
}

/** Every instant of the range is in `whole` or in one of `rest`, and in one of them only. */
export function monthRange({ since, until }: InstantRange): MonthRange {
  if (since !== undefined && until !== undefined && since >= until) return { whole: undefined, rest: [] };
  const first = since === undefined ? undefined : ceilMonth(since);
  const end = until === undefined ? undefined : monthStart(until);
  if (since !== undefined && until !== undefined && first !== undefined && end !== undefined && end < first) {
    return { whole: undefined, rest: [part(since, until)] };
  }
  const rest = [];
  if (since !== undefined && first !== undefined && since < first) rest.push(part(since, first));
  if (until !== undefined && end !== undefined && end < until) rest.push(part(end, until));
  const hasWhole = first === undefined || end === undefined || first < end;
  return {
    whole: hasWhole ? { first: named(first), end: named(end) } : undefined,
    rest,
  };
}

/** Whether `month` is one of the whole ones. */
export function isWhole(month: string, { whole }: MonthRange): boolean {
  if (whole === undefined) return false;
  return (
    (whole.first === undefined || month >= whole.first) && (whole.end === undefined || month < whole.end)
  );
}

function part(from: Micros, to: Micros): MonthRange['rest'][number] {
  return { month: monthOf(from), from: formatInstant(from), to: formatInstant(to) };
}

function named(start: Micros | undefined): string | undefined {
  return start === undefined ? undefined : monthOf(start);
}

function ceilMonth(instant: Micros): Micros {
  const start = monthStart(instant);
  return start === instant ? start : monthStart(start + DAYS_TO_NEXT_MONTH * DAY_MICROS);
}
