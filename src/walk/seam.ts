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
/** Each twice as large, where one group fills the page. */
const TRIES_MAX = 3;

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
  const from = gap.met.at(Math.min(GROUPS_BEHIND_SEAM, gap.met.length) - 1);
  const before = from?.rows[0]?.cursor;
  const shown = gap.stretch.cut.whole;
  // The page's first group may be the rest of the one that its cursor was in.
  const expected = from === undefined ? [] : shown.slice(1, shown.indexOf(from));
  if (from === undefined || before === undefined || expected.length === 0) return 'not needed';
  let size = Math.min(BACKWARD_ROWS_MAX, context.pageSize);
  for (let tries = 0; tries < TRIES_MAX; tries += 1, size *= 2) {
    const back = await askBackward(context, { newestFirst: gap.direction === 'down', size, before });
    if (back === undefined) return 'refused';
    // Rows of the cursor's own group may be among them, and the farthest group may be cut.
    const between = back.filter(({ group }) => group !== from.group).slice(1);
    const common = Math.min(between.length, expected.length);
    if (common === 0 && back.length > 0) continue;
    if (common > 0 && agree(between.slice(-common), expected.slice(-common))) return 'confirmed';
    const tailOf = (groups: readonly RowGroup[]): string[] => groups.slice(-3).map(({ group }) => group);
    const meta = { before: from.group, expected: tailOf(expected), got: tailOf(between) };
    await noteOnce(context, { code: 'SEAM_CONTRADICTED', meta });
    return 'contradicted';
  }
  return 'inconclusive';
}

/** @returns undefined where the source does not answer such questions */
async function askBackward(
  context: WalkContext,
  question: { newestFirst: boolean; size: number; before: string },
): Promise<readonly RowGroup[] | undefined> {
  try {
    const page = await askPage(context, question);
    return cutPage(context.session.list, { ...page, hasNextPage: false }).whole;
  } catch (error) {
    if (error instanceof UnreachableError) throw error;
    if (!(error instanceof RetryableError || error instanceof PermanentError)) throw error;
    context.tally.warn(`the source gave no backward page to confirm the seam (${error.code})`);
    return undefined;
  }
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
