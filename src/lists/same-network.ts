/**
 * Finds out whether the source serves the network of the stored rows: by the oldest rows
 * that it shows, and by the reading of the other list.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { withoutOddKeys } from '../ledger/ids.ts';
import type { ListName } from './ports.ts';
import type { SyncContext } from './sync-context.ts';
import type { Generation } from './store/generations.ts';

/**
 * The longest wait for the other list, whose reading may settle a doubt about the
 * network.
 */
const OTHER_LIST_MAX_MS = 10 * 60_000;
const OTHER_LIST_POLL_MS = 250;

/**
 * Whether the source shows none of the stored rows. A source whose blocks are below an
 * earlier claim may lag, or may belong to a different network. The first page decides,
 * because that of a different network has no stored row.
 */
export async function showsNothingHeld(
  context: SyncContext,
  current: Generation | undefined,
): Promise<boolean> {
  if (current === undefined || !current.isClaimed) return false;
  const keys = await askOldestKeys(context, context.list);
  const { held } = await context.session.locate(current, keys);
  return keys.length > 0 && held.length === 0;
}

/**
 * Whether the source shows a stored party. Old checkpoints expire from the source;
 * parties do not.
 */
export async function showsHeldParty(context: SyncContext): Promise<boolean> {
  return context.session.holdsParty(await askOldestKeys(context, 'parties'));
}

/**
 * Requests the oldest page of a list. It is not part of the reading: a node of any
 * height may answer it.
 * @returns the keys of its rows, without those that cannot be parsed
 */
export async function askOldestKeys(
  { source, tally, pageSize: size, signal }: SyncContext,
  list: ListName,
): Promise<readonly string[]> {
  tally.requests += 1;
  const { rows } = await source.page(
    { list, newestFirst: false, size },
    signal,
  );
  return withoutOddKeys(rows.map(({ key }) => key));
}

/**
 * Waits for the reading of the other list, if one is under way: it may settle the doubt
 * about the network that prevents this list's claim. A night reads both lists at the same
 * time, and the one that ends first would otherwise stay unclaimed for a day.
 * @returns whether the other list is no longer in doubt
 */
export async function otherListAgrees({
  session,
  signal,
}: SyncContext): Promise<boolean> {
  const startedMs = performance.now();
  for (;;) {
    const { isOtherNetwork, isRead } = await session.otherList();
    if (!isOtherNetwork) return true;
    const waitedMs = performance.now() - startedMs;
    if (!isRead || waitedMs > OTHER_LIST_MAX_MS) return false;
    await sleep(OTHER_LIST_POLL_MS, undefined, { signal });
  }
}
