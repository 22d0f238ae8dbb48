/**
 * Brings one list up to date. A first reading, an incremental reading and an audit all
 * work the same way: a generation is read forward, oldest first, until the newest page
 * shows that its end has been reached; then it is claimed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { RetryableError } from '../errors/errors.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import { waitFor } from '../concurrency/timeouts.ts';
import {
  describeSync,
  Tally,
  type SyncContext,
  type SyncDeps,
} from './sync-context.ts';
import { chooseMode } from './choose-mode.ts';
import { claimReading } from './claim-reading.ts';
import { readToEnd } from './page-loop.ts';
import {
  DoubtError,
  type EndNotShown,
  otherNetwork,
  readingsDiffer,
} from './page-checks.ts';
import type { ListName, SyncRequest } from './ports.ts';
import { showsNothingHeld } from './same-network.ts';
import { ListReader } from './page-fetcher.ts';
import {
  chooseResumePoint,
  openResumePoints,
  StaleResumePoint,
} from './resume-point.ts';
import {
  decideNext,
  isRefusal,
  NO_SETBACKS,
  type NextReading,
  type Setback,
  type Setbacks,
  type SyncDecision,
} from './sync-decisions.ts';
import type { AuditReport } from './store/audit.ts';
import type { Claim } from './store/claim.ts';
import type { Generation } from './store/generations.ts';
import type { ListSession } from './store/list-store.ts';

const NOT_SHOWN_PAUSE_MS = 500;
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
  const session = await waitForSession(
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
export function waitForSession(
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
      busyElsewhere(
        list,
        'another worker is reading it; wait until it has finished',
      ),
  );
}

/** Reads the list until a reading ends with a verdict, or there is a reason to stop. */
async function run(context: SyncContext): Promise<VerdictWithEvidence> {
  const { session, tally } = context;
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
  let setbacks = NO_SETBACKS;
  for (;;) {
    const outcome = await readOnce(context, generation, setbacks);
    if (outcome.kind === 'ended') return outcome.result;
    const state = { generation, setbacks, readings: tally.readings };
    const decision = decideNext(state, outcome);
    if (decision.kind !== 'read again')
      return stop(context, decision, generation.epoch, found.current);
    generation = await chooseGeneration(context, generation, decision.next);
    ({ setbacks } = decision);
  }
}

type Outcome =
  | Setback
  | { readonly kind: 'ended'; readonly result: VerdictWithEvidence };

/** Reads and claims a generation, and returns the outcome. */
async function readOnce(
  context: SyncContext,
  generation: Generation,
  { stale }: Setbacks,
): Promise<Outcome> {
  try {
    const result = await readAndClaim(context, generation, stale > 0);
    return result === undefined
      ? { kind: 'unconfirmed' }
      : { kind: 'ended', result };
  } catch (error) {
    return { kind: 'thrown', error };
  }
}

/** Prepares the next reading, and returns the generation that it reads. */
async function chooseGeneration(
  context: SyncContext,
  last: Generation,
  next: NextReading,
): Promise<Generation> {
  const { session, tally } = context;
  switch (next.kind) {
    case 'confirm': {
      const { epoch } = await session.situation();
      return session.begin('audit', epoch);
    }
    case 'resume': {
      const now = (await session.situation())[last.kind];
      return now ?? session.begin('audit', last.epoch);
    }
    case 'restart audit':
      return session.begin('audit', last.epoch);
    case 'try next node': {
      const { pauseMs = NOT_SHOWN_PAUSE_MS, signal } = context;
      await sleep(pauseMs * next.pauses, undefined, { signal });
      const now = await session.situation();
      return now.current ?? last;
    }
    case 'audit instead':
      break;
  }
  tally.mode = { kind: 'audit', because: next.because };
  tally.warn(next.because);
  return session.begin('audit', last.epoch);
}

/**
 * Ends the sync without a claim.
 * @param current the rows that were stored when the sync began
 */
async function stop(
  context: SyncContext,
  decision: Exclude<SyncDecision, { kind: 'read again' }>,
  epoch: number,
  current: Generation | undefined,
): Promise<VerdictWithEvidence> {
  const { list, tally } = context;
  switch (decision.kind) {
    case 'refuse':
      return refuse(context, epoch, decision.error);
    case 'refuse source behind': {
      const isOther = await showsNothingHeld(context, current);
      return refuse(
        context,
        epoch,
        isOther ? otherNetwork(list) : decision.error,
      );
    }
    case 'refuse unsteady':
      return refuse(context, epoch, readingsDiffer(list, tally));
    case 'busy':
      throw busyElsewhere(
        list,
        'its resume point keeps changing; wait until others have finished',
      );
    case 'rethrow':
      break;
  }
  throw decision.error;
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
  const claimed = await claimReading(context, claim);
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
      message: 'one of the lists was found to belong to another network',
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
