/**
 * Decides which closed segments of a ledger are merged: neighbours that end in the same
 * calendar month (UTC), along with the empty ranges between them. Only months that are
 * over are merged, so that each row is rewritten only once. Pure.
 */
import { type Micros, monthOf } from '../../time/time.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { CoverageWithObject } from '../publishing/stored-rows.ts';

export interface MergeLimits {
  /**
   * The latest end of a merged range. Ranges that end later are left alone, because
   * their month is not over.
   */
  readonly before: Micros;
  /** Maximum size of a merged segment in bytes of plain CSV. */
  readonly bytesMax: bigint;
}

/**
 * Groups the ranges to merge.
 * @param coverage the coverage of one scope
 * @returns groups of neighbours, ordered by time, each with at least two segments
 */
export function planMerges(
  coverage: readonly Coverage[],
  limits: MergeLimits,
): readonly (readonly Coverage[])[] {
  const groups: Coverage[][] = [];
  let group: Coverage[] = [];
  for (const row of coverage.toSorted((one, other) =>
    one.from < other.from ? -1 : 1,
  )) {
    if (!joins(group, row, limits)) {
      groups.push(group);
      group = [];
    }
    if (mayMerge(row, limits)) group.push(row);
  }
  return [...groups, group].filter((rows) => rows.filter(hasRows).length > 1);
}

/**
 * Whether a segment is small enough to merge. Adding a few rows to a large segment
 * would rewrite all of it.
 */
export function isSmall(
  bytes: bigint,
  { bytesMax }: Pick<MergeLimits, 'bytesMax'>,
): boolean {
  return 2n * bytes <= bytesMax;
}

function mayMerge(row: Coverage, limits: MergeLimits): boolean {
  if (row.open || row.isFaulty === true) return false;
  if (row.to > limits.before || row.sides === 'unknown') return false;
  if (row.content !== undefined) return isSmall(row.content.bytes, limits);
  // An empty range that is longer than its month needs no object.
  return row.objectKey === undefined && monthOf(row.from) === endMonthOf(row);
}

/**
 * Whether a range can be appended to the group: it must begin where the group's last
 * range ends, and have the same properties.
 */
function joins(
  group: readonly Coverage[],
  row: Coverage,
  limits: MergeLimits,
): boolean {
  const last = group.at(-1);
  if (last === undefined) return true;
  if (!mayMerge(row, limits)) return false;
  const isNeighbour =
    last.to === row.from && endMonthOf(last) === endMonthOf(row);
  const isAlike =
    last.sides === row.sides &&
    last.epoch === row.epoch &&
    last.assetId === row.assetId;
  if (!isNeighbour || !isAlike) return false;

  const contents = [...group, row].flatMap(({ content }) => content ?? []);
  const rowForms = new Set(contents.map(({ rowForm }) => rowForm));
  const bytes = contents.reduce((sum, content) => sum + content.bytes, 0n);
  return rowForms.size <= 1 && bytes <= limits.bytesMax;
}

export function hasRows(row: Coverage): row is CoverageWithObject {
  return row.objectKey !== undefined;
}

function endMonthOf({ to }: Coverage): string {
  return monthOf(to - 1n);
}
