/**
 * Decides which segments must be replaced in one transaction. A superseded segment's rows
 * are removed in the transaction that adds its replacement's rows. Segments that replace
 * nothing are loaded separately, so that a long first load can be resumed segment by
 * segment.
 */
import type { SegmentRecord } from '../catalog/segment-records.ts';
import { doRangesOverlap } from './newest-ranges.ts';

/** A superseded segment whose rows are still in the warehouse. */
export interface StaleSegment {
  readonly segmentId: bigint;
  /** The asset of the range; null stands for every asset. */
  readonly assetId: string | null;
  /** The start of the range, as RFC 3339. */
  readonly from: string;
  /** The end of the range, exclusive, as RFC 3339. */
  readonly to: string;
}

/**
 * Segments to load and superseded segments to remove, all in one transaction, so that no
 * reader sees a range twice or not at all.
 */
export interface Replacement {
  readonly load: readonly SegmentRecord[];
  readonly remove: readonly StaleSegment[];
}

/**
 * Groups `pending` and `stale` segments into replacements. A stale segment and a pending
 * one that overlap in time and asset are always in the same replacement. A replacement
 * that contains a segment in `faulty` is left out entirely: its stale rows stay until
 * every segment that replaces them can be loaded.
 */
export function planReplacements(
  pending: readonly SegmentRecord[],
  stale: readonly StaleSegment[],
  faulty: ReadonlySet<bigint>,
): readonly Replacement[] {
  let groups: readonly Replacement[] = pending.map((segment) => ({
    load: [segment],
    remove: [],
  }));
  for (const old of stale) {
    const touched = groups.filter((group) =>
      group.load.some((segment) => doRangesOverlap(old, segment)),
    );
    const joined: Replacement = {
      load: touched.flatMap((group) => group.load),
      remove: [old, ...touched.flatMap((group) => group.remove)],
    };
    groups = [...groups.filter((group) => !touched.includes(group)), joined];
  }

  return groups
    .filter(
      (group) => !group.load.some((segment) => faulty.has(segment.segmentId)),
    )
    .toSorted((a, b) => (findStart(a) < findStart(b) ? -1 : 1));
}

/**
 * Returns the earliest start of a replacement as an RFC 3339 string, which sorts by time.
 */
function findStart({ load, remove }: Replacement): string {
  const starts = [...load, ...remove].map(({ from }) => from);
  return starts.reduce((earliest, start) =>
    start < earliest ? start : earliest,
  );
}
