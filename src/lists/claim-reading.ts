/**
 * Claims a reading that has reached the end of its list. The claim may require proof
 * that the source serves the same network, or that the oldest rows have expired. If so,
 * obtains that proof first.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { heightOf } from '../ledger/ids.ts';
import { ExpiryUnproven, NetworkUnproven } from './page-checks.ts';
import {
  askOldestKeys,
  otherListAgrees,
  showsHeldParty,
} from './same-network.ts';
import type { SyncContext } from './sync-context.ts';
import type { Claim, Claimed } from './store/claim.ts';

/**
 * How many times the source's oldest rows are requested before stored rows count as
 * expired. In a fleet, the reading may have come from a node that keeps fewer rows than
 * others.
 */
const OLDEST_ASKED = 5;
/** One row is enough if it can be parsed; the others are spares. */
const OLDEST_ROWS = 5;
const OLDEST_PAUSE_MS = 500;
const NODES_DIFFER =
  'OLDEST_ROWS_MISSING: another node of the source shows older rows, so the list was ' +
  'read again';

/**
 * Claims a reading. The claim may require proof that the source serves the same
 * network, that the oldest rows have expired, or that the other list is of the same
 * network. If such a proof is missing, obtains it and claims again.
 * @returns `unconfirmed` if another node of the source shows older rows than the reading
 */
export async function claimReading(
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
