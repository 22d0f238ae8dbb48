/**
 * Chooses what a sync does with a list: reads it for the first time, continues from the
 * stored rows, or reads the whole list again as an audit.
 */
import { heightOf } from '../ledger/ids.ts';
import { askPage, type SyncContext, type Tally } from './sync-context.ts';
import type { ListSituation } from './store/list-state.ts';

/** Chooses whether to read the whole list again, and gives the reason. */
export async function chooseMode(
  context: SyncContext,
  found: ListSituation,
): Promise<Tally['mode']> {
  const { current, audit, gaps } = found;
  const [open] = found.doubts;
  if (current === undefined) return { kind: 'first reading' };
  const kind = 'audit';
  if (context.isAudit) return { kind, because: 'asked for' };
  if (open !== undefined) return { kind, because: `open doubt: ${open.code}` };
  if (gaps.some(({ isConfirmed }) => !isConfirmed))
    return { kind, because: 'a gap that no audit has confirmed' };
  if (!current.isAppendOnly)
    return { kind, because: 'the source inserts rows between others' };
  if (audit !== undefined) return { kind, because: 'one was begun' };
  if (!current.isClaimed) return { kind: 'first reading' };
  if (!current.isConfirmed)
    return { kind, because: 'no second reading has confirmed the last one' };
  const { wholeUpToRows } = context;
  if (wholeUpToRows !== undefined && current.rows <= BigInt(wholeUpToRows))
    return { kind, because: 'each night reads the whole list' };
  const [gap] = gaps;
  if (gap === undefined) return { kind: 'increment' };
  const [oldest] = (await askPage(context, { newestFirst: false, size: 1 }))
    .rows;
  const isOlder =
    oldest !== undefined &&
    oldest.odd === undefined &&
    heightOf(oldest.key) < heightOf(gap.aboveKey);
  return isOlder
    ? { kind, because: 'the source serves older rows again' }
    : { kind: 'increment' };
}
