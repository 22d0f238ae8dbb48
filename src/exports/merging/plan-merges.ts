/**
 * Which closed segments of a ledger become one: those that lie side by side and end in one calendar month (UTC), with
 * the ranges without entries between them. Only months that are over: each row is written once more, and then stays. Pure.
 */
import { type Micros, monthOf } from '../../time/time.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';

export interface MergeLimits {
  /** Ranges that end later are left alone: their month goes on. */
  readonly before: Micros;
  /** Of plain CSV, in the merged segment. */
  readonly bytesMax: bigint;
}

/** Segments are at least two, in the order of time. @param coverage of one scope */
export function planMerges(
  coverage: readonly Coverage[],
  limits: MergeLimits,
): readonly (readonly Coverage[])[] {
  const groups: Coverage[][] = [];
  let group: Coverage[] = [];
  for (const row of coverage.toSorted((one, other) => (one.from < other.from ? -1 : 1))) {
    if (!joins(group, row, limits)) {
      groups.push(group);
      group = [];
    }
    if (mayMerge(row, limits)) group.push(row);
  }
  return [...groups, group].filter((rows) => rows.filter(hasRows).length > 1);
}

/** So that adding little to much does not write much again. */
export function isSmall(
  bytes: bigint,
  { bytesMax }: Pick<MergeLimits, 'bytesMax'>,
): boolean {
  return 2n * bytes <= bytesMax;
}

function mayMerge(row: Coverage, limits: MergeLimits): boolean {
  if (
    row.open ||
    row.isFaulty === true ||
    row.to > limits.before ||
    row.sides === 'unknown'
  )
    return false;
  if (row.content !== undefined) return isSmall(row.content.bytes, limits);
  // What is empty for longer than its month needs no object.
  return row.objectKey === undefined && monthOf(row.from) === endMonthOf(row);
}

function joins(group: readonly Coverage[], row: Coverage, limits: MergeLimits): boolean {
  const last = group.at(-1);
  if (last === undefined) return true;
  const isBeside = last.to === row.from && endMonthOf(last) === endMonthOf(row);
  const isAlike =
    last.sides === row.sides && last.epoch === row.epoch && last.assetId === row.assetId;
  const forms = new Set([...group, row].flatMap(({ content }) => content?.rowForm ?? []));
  const bytes = [...group, row].reduce(
    (sum, { content }) => sum + (content?.bytes ?? 0n),
    0n,
  );
  return (
    isBeside &&
    isAlike &&
    forms.size <= 1 &&
    bytes <= limits.bytesMax &&
    mayMerge(row, limits)
  );
}

export function hasRows(row: Coverage): row is Coverage & { readonly objectKey: string } {
  return row.objectKey !== undefined;
}

function endMonthOf({ to }: Coverage): string {
  return monthOf(to - 1n);
}
