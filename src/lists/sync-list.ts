/**
 * Brings one list up to date. A first reading, an incremental reading and an audit all
 * work the same way: a generation is read forward, oldest first, until the newest page
 * shows that its end is reached; then it is claimed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { heightOf, withoutOddKeys } from '../ledger/ids.ts';
import { RetryableError } from '../errors/errors.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import {
  askPage,
  describeSync,
  Tally,
  type SyncContext,
  type SyncDeps,
} from './sync-context.ts';
import { readToEnd } from './page-loop.ts';
import {
  DoubtError,
  EndNotShown,
  NetworkUnproven,
  otherNetwork,
  OverlapMissing,
  readingsDiffer,
  SourceBehind,
} from './page-checks.ts';
import type { ListName, SyncRequest } from './ports.ts';
import { ListReader } from './page-fetcher.ts';
import {
  chooseResumePoint,
  openResumePoints,
  StaleResumePoint,
} from './resume-point.ts';
import type { AuditReport } from './store/audit.ts';
import type { Claim, Claimed } from './store/claim.ts';
import type { Generation } from './store/generations.ts';
import type { ListSituation } from './store/list-state.ts';
import type { ListSession } from './store/list-store.ts';

/**
 * How many outdated resume points one sync tolerates. Each costs one page; the second
 * attempt uses the resume point from Postgres.
 */
const STALE_MAX = 3;
/**
 * How often stored rows that the source did not show are requested again before the
 * whole list is read again.
 */
const NOT_SHOWN_MAX = 3;
const NOT_SHOWN_PAUSE_MS = 500;
/** The most complete readings in one sync; two in a row must agree. */
const READINGS_MAX = 4;
/** The longest wait for the other list, whose reading may settle a doubt about the network. */
const OTHER_LIST_MAX_MS = 10 * 60_000;
const OTHER_LIST_POLL_MS = 250;
/** How long to wait for a busy list: longer than the lease of a dead worker lasts. */
const WAIT_FOR_LEASE_MS = 13_000;

/**
 * Syncs the list and records the verdict of the run.
 * @throws FencedError if another worker took over; the caller stops quietly, as nothing
 *   that was committed is lost
 * @throws RetryableError `LIST_BUSY` while another worker syncs the list, or if the
 *   source asks to wait for a long time
 * @throws UnreachableError if the source or the database is unreachable; what was
 *   committed stays
 */
export async function syncList(
  request: SyncRequest,
  deps: SyncDeps,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const session = await openSession(
    deps.store,
    request.list,
    request.runId,
    signal,
  );
  await using resumePoints = openResumePoints(deps.resumePoints, request.list);
  await using lease = session.keepLease();
  const signals = AbortSignal.any([signal, lease.signal]);
  try {
    return await run({
      ...deps,
      ...request,
      session,
      resumePoints,
      signal: signals,
      tally: new Tally(),
    });
  } catch (error) {
    if (lease.signal.aborted) throw lease.signal.reason;
    throw error;
  }
}

/**
 * Opens the sync, waiting for the lease of a worker that may be dead.
 * @throws RetryableError `LIST_BUSY` if the other worker is alive
 */
export function openSession(
  store: SyncDeps['store'],
  list: ListName,
  runId: string,
  signal: AbortSignal,
  waitMs = WAIT_FOR_LEASE_MS,
): Promise<ListSession> {
  return waitFor(
    () => store.open(list, runId, signal),
    { waitMs, signal },
    () =>
      busyElsewhere(list, 'another worker is at it; wait until it has ended'),
  );
}

async function run(context: SyncContext): Promise<VerdictWithEvidence> {
  const { session, tally, list } = context;
  const found = await session.situation();
  // Block heights of a different network cannot be compared with ours.
  if (found.claimedHeight !== null && context.acceptNewNetwork !== true)
    tally.claimedHeight = BigInt(found.claimedHeight);
  try {
    tally.mode = await chooseMode(context, found);
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return refuse(context, found.epoch, error);
  }
  const kind = tally.mode.kind === 'audit' ? 'audit' : 'current';
  let generation = found[kind] ?? (await session.begin(kind, found.epoch));
  let notShown = 0;
  for (let stale = 0; ;) {
    try {
      const ended = await readAndClaim(context, generation, stale > 0);
      if (ended !== undefined) return ended;
      if (tally.readings >= READINGS_MAX)
        return refuse(context, generation.epoch, readingsDiffer(list, tally));
      const { epoch } = await session.situation();
      generation = await session.begin('audit', epoch);
      stale = 0;
    } catch (error) {
      if (error instanceof StaleResumePoint) {
        stale += 1;
        if (stale > STALE_MAX) {
          throw busyElsewhere(
            list,
            'its resume point keeps changing; wait until others have ended',
          );
        }
        const now = (await session.situation())[generation.kind];
        generation = now ?? (await session.begin('audit', generation.epoch));
      } else if (
        error instanceof DoubtError &&
        generation.kind === 'audit' &&
        generation.sequence > 0n
      ) {
        // The rows that an earlier run has read may be wrong.
        generation = await session.begin('audit', generation.epoch);
      } else if (
        error instanceof OverlapMissing &&
        generation.kind === 'current' &&
        notShown < NOT_SHOWN_MAX
      ) {
        // A lagging node may have answered; the next node may be up to date.
        notShown += 1;
        const { pauseMs = NOT_SHOWN_PAUSE_MS, signal } = context;
        await sleep(pauseMs * notShown, undefined, { signal });
        const now = await session.situation();
        generation = now.current ?? generation;
      } else if (
        error instanceof OverlapMissing &&
        generation.kind === 'current'
      ) {
        // The source no longer continues from the stored rows: the list is read again
        // from its oldest row.
        tally.mode = { kind: 'audit', because: error.state };
        tally.warn(error.state);
        generation = await session.begin('audit', generation.epoch);
        stale = 0;
      } else if (error instanceof SourceBehind) {
        const isOther = await showsNothingHeld(context, found.current);
        const refusal = isOther ? otherNetwork(list) : error;
        return refuse(context, generation.epoch, refusal);
      } else if (isRefusal(error)) {
        return refuse(context, generation.epoch, error);
      } else throw error;
    }
  }
}

function isRefusal(error: unknown): error is DoubtError | EndNotShown {
  return error instanceof DoubtError || error instanceof EndNotShown;
}

/**
 * Whether the source shows none of the stored rows. A source whose blocks are below an
 * earlier claim may lag, or may belong to a different network: in that case its first
 * page has no stored row.
 */
async function showsNothingHeld(
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

/** Chooses whether to read the whole list again, and gives the reason. */
async function chooseMode(
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
    return { kind, because: 'the source puts rows between others' };
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

/**
 * Reads a generation to its end and claims it.
 * @returns undefined if the list is claimed but has to be read once more: the next
 *   reading shows whether the source inserts rows, and whether another node shows the
 *   same list
 * @throws DoubtError, EndNotShown, StaleResumePoint
 */
async function readAndClaim(
  context: SyncContext,
  generation: Generation,
  byPostgres: boolean,
): Promise<VerdictWithEvidence | undefined> {
  const { failpoint, tally, resumePoints } = context;
  const remembered = byPostgres ? undefined : await resumePoints.read();
  const { point, from } = chooseResumePoint(generation, remembered);
  tally.resumedFrom ??= from;
  await using reader = new ListReader(context, generation, point);
  const newestKeys = await readToEnd(reader);
  await failpoint?.('claiming');
  const claim: Claim = {
    ...tally.head,
    generation,
    sequence: BigInt(reader.point.sequence),
    newestKeys,
    accepted: context,
    evidence: (standing, audit) => describeSync(context, standing, [], audit),
  };
  const claimed = await claimPatiently(context, claim);
  await failpoint?.('claimed');
  if (claimed.kind === 'stale') throw new StaleResumePoint();
  if (claimed.kind === 'doubt')
    return refuse(context, generation.epoch, claimed.doubt);
  if (claimed.kind === 'odd rows')
    return refuse(context, generation.epoch, claimed.doubt, claimed.audit);
  if (claimed.kind === 'refused')
    return refuse(context, generation.epoch, undefined, claimed.audit);
  if (claimed.kind === 'unconfirmed') {
    tally.beginNextReading(claimed.audit);
    return undefined;
  }
  return { verdict: 'complete' as const, evidence: { ...claimed.evidence } };
}

/**
 * Claims a reading, and claims it again once what the claim lacked is known: that the
 * source is of the same network, or that the other list is.
 */
async function claimPatiently(
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

/**
 * Records the reason why the list is not `complete`, and the verdict that follows.
 * @param error undefined if the database refused the claim
 */
async function refuse(
  context: SyncContext,
  epochRead: number,
  error?: DoubtError | EndNotShown,
  audit?: AuditReport,
): Promise<VerdictWithEvidence> {
  const { session } = context;
  const verdict = error instanceof DoubtError ? 'suspicious' : 'incomplete';
  if (error instanceof DoubtError) await session.openDoubt(epochRead, error);
  const found = await session.situation();
  const gap = found.gaps.find(({ isConfirmed }) => !isConfirmed);
  let missing: object = { code: 'NOT_PROVEN' };
  if (found.isOtherNetwork)
    missing = {
      code: 'OTHER_NETWORK',
      message: 'one of the lists was found to be of another network',
    };
  if (gap !== undefined)
    missing = {
      code: 'KNOWN_GAP',
      belowKey: gap.belowKey,
      aboveKey: gap.aboveKey,
    };
  if (error !== undefined)
    missing = { code: error.code, message: error.message, ...error.meta };
  const evidence = describeSync(context, found, [missing], audit);
  await session.settle(verdict, evidence);
  return { verdict, evidence };
}

function busyElsewhere(list: ListName, state: string): RetryableError {
  return new RetryableError(`Cannot sync ${list}: ${state}`, {
    code: 'LIST_BUSY',
    meta: { list },
    retryAfterMs: WAIT_FOR_LEASE_MS,
  });
}

/**
 * Looks up one party by its id and records whether the source lists it. The party is
 * stored without a position in the list, which only a sync can prove.
 */
export async function lookUpParty(
  id: string,
  deps: Pick<SyncDeps, 'source' | 'store'>,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const row = await deps.source.party(id, signal);
  const evidence = row
    ? { listed: true, ...(await deps.store.keepParty(row)) }
    : { listed: false };
  return { verdict: 'complete', evidence };
}
