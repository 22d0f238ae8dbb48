/**
 * Which segments must change place together. A superseded segment's rows leave in the transaction that
 * brings what stands in for them; segments that replace nothing go alone, so that a long first load can
 * be resumed segment by segment.
 */
import { readInstant, type Micros } from '../core/time.ts';
import type { Replacement, SegmentRecord, StaleSegment } from './ports.ts';

/**
 * Groups `pending` and `stale` into replacements such that no stale row shares an instant and an asset
 * with a pending segment of another replacement. A group with a segment of `faulty` is left out whole:
 * the rows that it would replace stay until everything that stands in for them can be loaded.
 */
export function planReplacements(
  pending: readonly SegmentRecord[],
  stale: readonly StaleSegment[],
  faulty: ReadonlySet<bigint>,
): readonly Replacement[] {
  const groups: { load: SegmentRecord[]; remove: StaleSegment[] }[] = pending.map((segment) => ({
    load: [segment],
    remove: [],
  }));
  for (const old of stale) {
    const touched = groups.filter((group) => group.load.some((segment) => overlap(old, segment)));
    const joined = {
      load: touched.flatMap((group) => group.load),
      remove: [old, ...touched.flatMap((group) => group.remove)],
    };
    for (const group of touched) groups.splice(groups.indexOf(group), 1);
    groups.push(joined);
  }
  return groups
    .filter((group) => !group.load.some((segment) => faulty.has(segment.segmentId)))
    .toSorted((a, b) => compareInstants(startOf(a), startOf(b)));
}

function overlap(a: StaleSegment, b: StaleSegment): boolean {
  const sameAsset = a.assetId === undefined || b.assetId === undefined || a.assetId === b.assetId;
  return sameAsset && readInstant(a.from) < readInstant(b.to) && readInstant(b.from) < readInstant(a.to);
}

function startOf(group: Replacement): Micros {
  const starts = [...group.load, ...group.remove].map((segment) => readInstant(segment.from));
  return starts.reduce((least, start) => (start < least ? start : least));
}

function compareInstants(a: Micros, b: Micros): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
