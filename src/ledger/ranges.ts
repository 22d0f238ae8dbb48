/**
 * Set operations on half-open ranges of time, `[from, to)`, in whole seconds.
 */
import { floorSecond, type Micros, SECOND_MICROS } from '../time/time.ts';

interface Span<Instant> {
  readonly from: Instant;
  readonly to: Instant;
}
export type Range = Span<Micros>;

export function overlaps<Instant>(
  left: Span<Instant>,
  right: Span<Instant>,
): boolean {
  return left.from < right.to && right.from < left.to;
}

/**
 * Returns `range` without the `excluded` ranges, which may overlap and be in any order.
 * The resulting ranges are disjoint, sorted and not empty.
 */
export function subtract(range: Range, excluded: readonly Range[]): Range[] {
  const rest: Range[] = [];
  let from = range.from;
  for (const taken of excluded.toSorted(byFrom)) {
    if (taken.to <= from) continue;
    if (taken.from >= range.to) break;
    if (taken.from > from) rest.push({ from, to: taken.from });
    from = taken.to;
  }
  if (from < range.to) rest.push({ from, to: range.to });
  return rest;
}

/** Merges ranges into the fewest that cover the same instants, sorted. */
export function union(ranges: readonly Range[]): Range[] {
  const joined: { from: Micros; to: Micros }[] = [];
  for (const range of ranges
    .filter(({ from, to }) => from < to)
    .toSorted(byFrom)) {
    const last = joined.at(-1);
    if (last === undefined || last.to < range.from) joined.push({ ...range });
    else if (last.to < range.to) last.to = range.to;
  }
  return joined;
}

export function byFrom(left: Range, right: Range): number {
  return left.from < right.from ? -1 : Number(left.from > right.from);
}

export function earlier(left: Micros, right: Micros): Micros {
  return left < right ? left : right;
}

export function later(left: Micros, right: Micros): Micros {
  return left > right ? left : right;
}

/**
 * Returns the whole seconds since 1970, which a double represents exactly for every
 * valid time.
 */
export function secondOf(instant: Micros): number {
  return Number(floorSecond(instant) / SECOND_MICROS);
}

/** Returns the instant at which a second begins. */
export function instantOf(second: number): Micros {
  return BigInt(second) * SECOND_MICROS;
}
