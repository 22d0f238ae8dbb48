/**
 * Pages of checkpoints, by height. Where several share one, the service leaves their order open and
 * its cursor cannot tell them apart; here they have an order and each a cursor, so that no page border
 * repeats or skips one.
 */
import type { CheckpointPosition, CursorForm } from './cursors.ts';
import { cutPage, type Edge, isAscending, PAGE_FIELDS, type PageOf, readPageRequest } from './paging.ts';
import type { ListState, ListStore } from './ports.ts';
import { readQuery } from './query-text.ts';

/** @throws StatusError as the service words it */
export async function checkpointPage(
  url: string,
  state: ListState,
  store: ListStore,
  cursors: CursorForm<CheckpointPosition>,
): Promise<PageOf<Edge>> {
  const given = readQuery(url, PAGE_FIELDS);
  const request = readPageRequest(given, state.epoch, (text) => cursors.read(text));
  const slice = await store.checkpoints({
    epoch: state.epoch,
    ascending: isAscending(request),
    beyond: request.cursor,
    top: state.top,
    rowsMax: request.rowsMax + 1,
  });
  const page = cutPage(request, slice);
  const texts = cursors.write(page.rows.map((row) => ({ epoch: state.epoch, ...row })));
  const edges = page.rows.map(({ hash, blockHash, atBlock }, index) => {
    const cursor = texts[index] ?? '';
    return { cursor, json: JSON.stringify({ node: { hash, blockHash, atBlock }, cursor }) };
  });
  return { ...page, rows: edges };
}
