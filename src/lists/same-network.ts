/**
 * Finds out what a claim or a refusal depends on: whether the source serves the network
 * of the stored rows, and whether the oldest of them have expired.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { heightOf, withoutOddKeys } from '../ledger/ids.ts';
import { ExpiryUnproven, NetworkUnproven } from './page-checks.ts';
import type { ListName } from './ports.ts';
import type { SyncContext } from './sync-context.ts';
import type { Claim, Claimed } from './store/claim.ts';
import type { Generation } from './store/generations.ts';

/** The longest wait for the other list, whose reading may settle a doubt about the network. */
const OTHER_LIST_MAX_MS = 10 * 60_000;
const OTHER_LIST_POLL_MS = 250;
/**
 * How often the source is asked for its oldest rows before stored rows count as expired.
 * In a fleet, a node that keeps fewer rows may have answered the reading.
 */
const OLDEST_ASKED = 5;
/** One row is enough, unless it is not understood. */
const OLDEST_ROWS = 5;
const OLDEST_PAUSE_MS = 500;
const NODES_DIFFER =
  'OLDEST_ROWS_MISSING: another node of the source shows older rows, so the list was ' +
  'read again';

/**
 * Whether the source shows none of the stored rows. A source whose blocks are below an
 * earlier claim may lag, or may belong to a different network: in that case its first
 * page has no stored row.
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
 * Whether the source shows a stored party. Checkpoints drop out of the source's
 * retention; parties do not.
 */
async function showsHeldParty(context: SyncContext): Promise<boolean> {
  return context.session.holdsParty(await askOldestKeys(context, 'parties'));
}

/** Whether any node of the source shows a row from before `oldestKey`. */
async function showsOlder(
  context: SyncContext,
  oldestKey: string,
): Promise<boolean> {
  const { list, pauseMs = OLDEST_PAUSE_MS, signal } = context;
  for (let asked = 0; asked < OLDEST_ASKED; asked += 1) {
    if (asked > 0) await sleep(pauseMs, undefined, { signal });
    const keys = await askOldestKeys(
      { ...context, pageSize: OLDEST_ROWS },
      list,
    );
    if (keys.some((key) => heightOf(key) < heightOf(oldestKey))) return true;
  }
  return false;
}

/**
 * Requests the oldest page of a list, to see which network the source serves. It is not
 * part of the reading: a node of any height may answer it.
 * @returns the keys of its rows, without those that are not understood
 */
async function askOldestKeys(
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
 * Claims a reading, and claims it again once what the claim lacked is known: that the
 * source is of the same network, that the oldest rows have expired, or that the other
 * list is of the same network.
 * @returns `unconfirmed` if another node of the source shows older rows than the reading
 */
export async function claimPatiently(
  context: SyncContext,
  claim: Claim,
): Promise<Claimed> {
  const { session } = context;
  let proven = claim;
  let claimed = await session.claim(proven);
  const isUnproven =
    claimed.kind === 'doubt' && claimed.doubt instanceof NetworkUnproven;
  if (isUnproven && (await showsHeldParty(context))) {
    proven = { ...claim, isSameNetwork: true };
    claimed = await session.claim(proven);
  }
  if (claimed.kind === 'doubt' && claimed.doubt instanceof ExpiryUnproven) {
    if (await showsOlder(context, claimed.doubt.oldestKey)) {
      context.tally.warn(NODES_DIFFER);
      return { kind: 'unconfirmed', audit: undefined };
    }
    proven = { ...proven, isExpiryProven: true };
    claimed = await session.claim(proven);
  }
  const awaitsOther = claimed.kind === 'refused' && claimed.awaitsOtherList;
  return awaitsOther && (await otherListAgrees(context))
    ? session.claim(proven)
    : claimed;
}

/**
 * Waits for the reading of the other list, if one is under way: it may settle the doubt
 * about the network that forbids this list's claim. A night reads both lists at the same
 * time, and the one that ends first would otherwise stay unclaimed for a day.
 * @returns whether the other list is not doubted any more
 */
async function otherListAgrees({
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
