/**
 * Pages of checkpoints, by height. Where several share one, the service leaves their order open and
 * its cursor cannot tell them apart; here they have an order and each a cursor, so that no page border
 * repeats or skips one.
 */
import { readQuery } from '../http/query-text.ts';
import type { Cursors } from './cursors.ts';
import { isAscending, type Page, PAGE_FIELDS, readPageRequest, toPage } from './paging.ts';
import type { CheckpointRow, ListState, ListStore } from './store/read-store.ts';

interface CheckpointPosition extends CheckpointRow {
  readonly epoch: number;
}

/** Answers a request for checkpoints. @throws StatusError as the service words it */
export async function checkpointPage(
  url: string,
  { epoch }: ListState,
  store: ListStore,
  cursors: Cursors,
): Promise<Page> {
  const request = readPageRequest(readQuery(url, PAGE_FIELDS), epoch, (text) => readPosition(text, cursors));
  const found = await store.checkpoints({
    epoch,
    ascending: isAscending(request),
    beyond: request.cursor,
    rowsMax: request.rowsMax + 1,
  });
  return toPage(request, found, ({ hash, blockHash, atBlock, copy }) => ({
    node: { hash, blockHash, atBlock },
    cursor: cursors.write(`${epoch}`, atBlock, `${copy}`, encode(hash), encode(blockHash)),
  }));
}

function readPosition(text: string, cursors: Cursors): CheckpointPosition | undefined {
  const [epoch, atBlock = '', copy, hash = '', blockHash = ''] = cursors.read(text) ?? [];
  if (epoch === undefined) return undefined;
  return {
    epoch: Number(epoch),
    atBlock,
    copy: Number(copy),
    hash: decode(hash),
    blockHash: decode(blockHash),
  };
}

/** Hashes are whatever the source wrote. */
function encode(hash: string): string {
  return Buffer.from(hash).toString('base64url');
}

function decode(field: string): string {
  return Buffer.from(field, 'base64url').toString();
}
