/**
 * A seam where both ends moved is looked at once more, from the other side: one backward page (`last`
 * with `before`) must show the same groups that the joining page showed.
 */
import { PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';
import { askPage, type WalkContext } from './context.ts';
import type { JoinedGap } from './gap.ts';
import { cutPage, keysOf, sameKeys, type RowGroup } from './groups.ts';
import { noteOnce } from './reader.ts';
import type { Seam } from './tally.ts';

const BACKWARD_ROWS_MAX = 100;
const GROUPS_BEHIND_SEAM = 3;

/** Asks once, where both ends moved; records what came of it. */
export async function confirmSeam(context: WalkContext, gap: JoinedGap): Promise<void> {
  const seam: Seam = {
    key: gap.seamKey ?? '',
    direction: gap.direction,
    overlapGroups: gap.overlap,
    backward: gap.isTwoEnded ? await lookBack(context, gap) : 'not needed',
  };
  context.tally.seams.push(seam);
  context.meter.closeSeam(seam.key);
}

async function lookBack(context: WalkContext, gap: JoinedGap): Promise<Seam['backward']> {
  const { stretch, direction, met } = gap;
  const shown = stretch.cut.whole;
  const from = met.at(Math.min(GROUPS_BEHIND_SEAM, met.length) - 1);
  const before = from?.rows[0]?.cursor;
  // The page's first group may be the rest of the one that its cursor was in.
  const expected = from === undefined ? [] : shown.slice(1, shown.indexOf(from));
  if (from === undefined || before === undefined || expected.length === 0) return 'not needed';
  const size = Math.min(BACKWARD_ROWS_MAX, context.pageSize);
  let back: readonly RowGroup[];
  try {
    const page = await askPage(context, { newestFirst: direction === 'down', size, before });
    back = cutPage(context.session.list, { ...page, hasNextPage: false }).whole;
  } catch (error) {
    if (error instanceof UnreachableError) throw error;
    if (!(error instanceof RetryableError || error instanceof PermanentError)) throw error;
    context.tally.warn(`the source gave no backward page to confirm the seam (${error.code})`);
    return 'refused';
  }
  // Rows of the cursor's own group may be among them, and the farthest group may be cut.
  const between = back.filter(({ group }) => group !== from.group).slice(1);
  const common = Math.min(between.length, expected.length);
  if (common > 0 && agree(between.slice(-common), expected.slice(-common))) return 'confirmed';
  await noteOnce(context, {
    code: 'SEAM_CONTRADICTED',
    meta: {
      before: from.group,
      expected: expected.slice(-3).map(({ group }) => group),
      got: between.slice(-3).map(({ group }) => group),
    },
  });
  return 'contradicted';
}

function agree(left: readonly RowGroup[], right: readonly RowGroup[]): boolean {
  return (
    left.length === right.length &&
    left.every((group, index) => {
      const other = right[index];
      return other?.group === group.group && sameKeys(keysOf(group).keys, keysOf(other).keys);
    })
  );
}
