/**
 * Pages of checkpoints, by height. Where several share one, the service leaves their order open and
 * its cursor cannot tell them apart; here they have an order and each a cursor, so that no page border
 * repeats or skips one.
 */
import type { CheckpointCursors, CheckpointPosition } from './cursors.ts';
import { PageShelf } from './page-shelf.ts';
import {
  isAscending,
  neighboursOf,
  type Page,
  PAGE_FIELDS,
  type PageRequest,
  readPageRequest,
  shownOf,
  writePage,
} from './paging.ts';
import type { ListState, ListStore } from './store/read-store.ts';
import { readQuery } from '../http/query-text.ts';

/** Answers requests for checkpoints, until the process ends. @throws StatusError as the service words it */
export function checkpointPages(
  store: ListStore,
  cursors: CheckpointCursors,
): (url: string, state: ListState) => Promise<Page> {
  const readCursor = (text: string): CheckpointPosition | undefined => cursors.read(text);
  const shelf = new PageShelf((request, state) => makePage(request, state, store, cursors), readCursor);
  return async (url, state) =>
    shelf.page(readPageRequest(readQuery(url, PAGE_FIELDS), state.epoch, readCursor), state);
}

async function makePage(
  request: PageRequest<CheckpointPosition>,
  { epoch }: ListState,
  store: ListStore,
  cursors: CheckpointCursors,
): Promise<Page> {
  const ascending = isAscending(request);
  const rowsMax = request.rowsMax + 1;
  const slice = await store.checkpoints({ epoch, ascending, beyond: request.cursor, rowsMax });
  const rows = shownOf(request, slice);
  return writePage('checkpoints', {
    nodes: rows.map(({ hash, blockHash, atBlock }) => JSON.stringify({ hash, blockHash, atBlock })),
    cursors: rows.map((row) => cursors.of({ epoch, ...row })),
    ...neighboursOf(request, slice.length),
  });
}
