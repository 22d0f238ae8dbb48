/**
 * What is left of a known segment when an answer takes the place of a part of it: its rows outside of that part,
 * read from the store and written anew. The source is not asked.
 */
import { type Range, secondOf } from '../plan/ranges.ts';
import type { Trim } from '../plan/remaining.ts';
import { RangeSpool } from '../spool/range-spool.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import { type NewRange, NONE_LEFT_OUT, type Written } from './new-range.ts';
import type { PublishContext } from './publish.ts';
import { copyStoredRows } from './stored-rows.ts';

/** What is left of a known range; undefined for an open one without entries, which claims nothing. */
export interface Kept {
  readonly row: Coverage;
  readonly rest: NewRange | undefined;
}

/**
 * @throws RetryableError `SEGMENT_UNREADABLE` where the object does not hold what is known of it: then all of its
 *   range is to be asked for
 */
export async function trimmed(trims: readonly Trim[], context: PublishContext): Promise<readonly Kept[]> {
  const kept: Kept[] = [];
  for (const { row, keeps } of trims) {
    const { objectKey } = row;
    await using stack = new AsyncDisposableStack();
    const spools = keeps.map(({ from, to }) =>
      stack.use(new RangeSpool(secondOf(from), secondOf(to), context)),
    );
    const layout =
      objectKey && (await copyStoredRows({ ...row, objectKey }, spools, 'keep a part of', context));
    for (const [index, range] of keeps.entries()) {
      const spooled = await spools[index]?.finish();
      const written = spooled && layout ? { leftOut: NONE_LEFT_OUT, spooled, layout } : undefined;
      kept.push({ row, rest: written === undefined && row.open ? undefined : restOf(row, range, written) });
    }
  }
  return kept;
}

function restOf(row: Coverage, range: Range, written: Written | undefined): NewRange {
  const isEnd = range.to === row.to && row.tail !== undefined && row.tail.from >= range.from;
  const { open, sides, assetId = null } = row;
  return { ...range, open, sides, assetId, tail: isEnd ? row.tail : undefined, written };
}
