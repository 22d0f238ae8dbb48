/**
 * What is left of a known segment when an answer takes the place of a part of it: its rows outside of that part,
 * read from the store and written anew. The source is not asked.
 */
import type { Layout } from '../../ledger/header.ts';
import { type Range, secondOf } from '../plan/ranges.ts';
import type { Trim } from '../plan/remaining.ts';
import { RangeSpool, type SpoolOptions } from '../spool/range-spool.ts';
import type { Spooled } from '../spool/range-spool.ts';
import type { Coverage } from '../store/coverage-rows.ts';
import { copyStoredRows, type StoredRowsDeps } from './stored-rows.ts';

/** A range that is kept, with its rows where it has any. */
export interface Kept {
  readonly row: Coverage;
  readonly range: Range;
  readonly written: { readonly spooled: Spooled; readonly layout: Layout } | undefined;
}

/**
 * @throws RetryableError `SEGMENT_UNREADABLE` where the object does not hold what is known of it: then all of its
 *   range is to be asked for
 */
export async function trimmed(
  trims: readonly Trim[],
  options: SpoolOptions,
  deps: StoredRowsDeps,
  signal: AbortSignal,
): Promise<readonly Kept[]> {
  const kept: Kept[] = [];
  for (const { row, keeps } of trims) {
    const { objectKey } = row;
    await using stack = new AsyncDisposableStack();
    const spools = keeps.map(({ from, to }) =>
      stack.use(new RangeSpool(secondOf(from), secondOf(to), options)),
    );
    const layout =
      objectKey === undefined
        ? undefined
        : await copyStoredRows({ ...row, objectKey }, spools, 'keep a part of', deps, signal);
    for (const [index, range] of keeps.entries()) {
      const spooled = await spools[index]?.finish();
      const written = spooled === undefined || layout === undefined ? undefined : { spooled, layout };
      kept.push({ row, range, written });
    }
  }
  return kept;
}
