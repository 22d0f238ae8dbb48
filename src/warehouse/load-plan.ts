/**
 * Which segments must change place together. A superseded segment's rows leave in the transaction that
 * brings what stands in for them; segments that replace nothing go alone, so that a long first load can
 * be resumed segment by segment.
 */
import type { SegmentRecord } from '../catalog/segment-records.ts';

/** A superseded segment whose rows are still in the warehouse. */
export type StaleSegment = Pick<SegmentRecord, 'segmentId' | 'assetId' | 'from' | 'to'>;

/** Segments that must change place in one transaction, so that nobody sees a range twice or not at all. */
export interface Replacement {
  readonly load: readonly SegmentRecord[];
  readonly remove: readonly StaleSegment[];
}

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
  const groups: { load: SegmentRecord[]; remove: StaleSegment[] }[] = pending.map(
    (segment) => ({
      load: [segment],
      remove: [],
    }),
  );
  for (const old of stale) {
    const touched = groups.filter((group) =>
      group.load.some((segment) => doRangesOverlap(old, segment)),
    );
    const joined = {
      load: touched.flatMap((group) => group.load),
      remove: [old, ...touched.flatMap((group) => group.remove)],
    };
    for (const group of touched) groups.splice(groups.indexOf(group), 1);
    groups.push(joined);
  }
  return groups
    .filter((group) => !group.load.some((segment) => faulty.has(segment.segmentId)))
    .toSorted((a, b) => (findStart(a) < findStart(b) ? -1 : 1));
}

/** RFC 3339, which sorts as it is. */
function findStart({ load, remove }: Replacement): string {
  return [...load, ...remove].map(({ from }) => from).reduce((a, b) => (a < b ? a : b));
}

interface AssetRange<Instant> {
  /** None: every asset. */
  readonly assetId?: string | null | undefined;
  readonly from: Instant;
  readonly to: Instant;
}

/**
 * Where ranges overlap, the newest holds, and of the others nothing: what it does not cover is asked for again.
 * @param ranges `at`: when the source was asked for it
 */
export function chooseNewest<Claim extends AssetRange<bigint> & { readonly at: bigint }>(
  ranges: readonly Claim[],
): { readonly held: readonly Claim[]; readonly gone: readonly Claim[] } {
  const [held, gone]: [Claim[], Claim[]] = [[], []];
  for (const range of ranges.toSorted((a, b) => Number(b.at - a.at)))
    (held.some((newer) => doRangesOverlap(range, newer)) ? gone : held).push(range);
  return { held, gone };
}

function doRangesOverlap<Instant extends bigint | string>(
  a: AssetRange<Instant>,
  b: AssetRange<Instant>,
) {
  const isOfBoth = !a.assetId || !b.assetId || a.assetId === b.assetId;
  return isOfBoth && a.from < b.to && b.from < a.to;
}
