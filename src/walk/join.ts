/**
 * How a page lies against a chain. Two stretches are joined only where the page runs along the chain
 * from its edge, without a hole and without a stranger.
 */
import { isWithin, keysOf, sameKeys, type RowGroup } from './groups.ts';
import type { PlacedGroup } from './ports.ts';

/** Fewer than two whole groups of overlap prove nothing: one could be luck of a dropped row. */
export const OVERLAP_GROUPS_MIN = 2;

/** A group of the page that the chain lacks, and its neighbours there. */
export interface Stranger {
  readonly group: RowGroup;
  readonly outer: PlacedGroup | undefined;
  readonly inner: PlacedGroup | undefined;
}

export interface Run {
  /** Whole groups that page and chain share, from the chain's edge inward. */
  readonly matched: number;
  readonly strangers: readonly Stranger[];
  /** Groups of the chain that the page passed over, or shows with fewer rows. */
  readonly missing: readonly PlacedGroup[];
  /** Whether that is enough to join. Not yet: one more page is needed. */
  readonly isProof: boolean;
}

/**
 * @param shown the page's groups from the first that the chain holds, in the order read
 * @param edge the chain's groups from its edge inward, at least as many as `shown`, or all it has
 */
export function runAlong(
  shown: readonly RowGroup[],
  edge: readonly PlacedGroup[],
  context: { partial: RowGroup | undefined; isWholeChain: boolean },
): Run {
  const places = new Map(edge.map((group, index) => [group.group, index]));
  const strangers: Stranger[] = [];
  const missing: PlacedGroup[] = [];
  let next = 0;
  let matched = 0;
  for (const group of shown) {
    if (next >= edge.length) break;
    const index = places.get(group.group);
    if (index === undefined || index < next) {
      strangers.push({ group, outer: edge[next - 1], inner: edge[next] });
      continue;
    }
    missing.push(...edge.slice(next, index));
    const held = edge[index];
    if (held === undefined) break;
    const { keys } = keysOf(group);
    if (!isWithin(held.keys, keys)) missing.push(held);
    if (!isWithin(keys, held.keys)) strangers.push({ group, outer: held, inner: held });
    if (sameKeys(keys, held.keys)) matched += 1;
    next = index + 1;
  }
  const { partial } = context;
  const behind = partial === undefined ? undefined : edge[next];
  if (partial !== undefined && behind !== undefined) {
    if (behind.group !== partial.group) missing.push(behind);
    else if (!isWithin(keysOf(partial).keys, behind.keys)) {
      strangers.push({ group: partial, outer: behind, inner: behind });
    }
  }
  const isProof = matched >= OVERLAP_GROUPS_MIN || (context.isWholeChain && matched === edge.length);
  return { matched, strangers: withoutTail(strangers, edge, next), missing, isProof };
}

/** What lies beyond the chain's other end belongs to the gap behind it, or to a later run. */
function withoutTail(
  strangers: readonly Stranger[],
  edge: readonly PlacedGroup[],
  reached: number,
): readonly Stranger[] {
  return reached < edge.length ? strangers : strangers.filter((stranger) => stranger.inner !== undefined);
}
