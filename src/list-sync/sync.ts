/**
 * Brings one list up to date. First reading, increment and audit are one: a generation is read on, oldest
 * first, until the newest page shows that its end is reached, and then claimed.
 */
import { heightOf } from '../core/ids.ts';
import { RetryableError } from '../core/errors.ts';
import type { VerdictWithEvidence } from '../core/verdict.ts';
import { waitFor } from '../core/waiting.ts';
import {
  askPage,
  describeSync,
  Tally,
  type Standing,
  type SyncContext,
  type SyncDeps,
  type SyncMode,
} from './context.ts';
import { readToEnd } from './list-end.ts';
import { doubt, DoubtSeen, EndNotShown, OverlapMissing } from './guards.ts';
import type { ListName } from './ports.ts';
import { Reader } from './reader.ts';
import { chooseResumePoint, ResumePoints, StaleResumePoint } from './resume-point.ts';
import type { Generation } from './store/generations.ts';
import type { ListSession, ListSituation } from './store/list-store.ts';

export interface SyncRequest {
  readonly list: ListName;
  /** Of a row in `mirror.runs` that is not finished; its verdict is recorded here. */
  readonly runId: string;
  /** Reads everything again. */
  readonly isAudit: boolean;
  readonly pageSize: number;
  /** A person has confirmed that the source shows a new network, of which no row is held. */
  readonly acceptNewNetwork?: boolean | undefined;
  /** A person has confirmed that the list lost many rows. */
  readonly acceptShrunk?: boolean | undefined;
}

/** An outdated resume point costs one page; the second attempt takes Postgres's. */
const STALE_MAX = 3;
/** Longer than the lease of a dead worker lasts. */
const WAIT_FOR_LEASE_MS = 13_000;

/**
 * Syncs the list and records the verdict of the run.
 * @throws FencedError where another worker took over; nothing of ours was lost, stop quietly
 * @throws RetryableError `LIST_BUSY` while another worker is at it, or where the source asks to wait long
 * @throws UnreachableError where the source or the database is away; what was committed stays
 */
export async function syncList(
  request: SyncRequest,
  deps: SyncDeps,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const { list, runId, pageSize, acceptNewNetwork = false, acceptShrunk = false } = request;
  const session = await openSession(deps.store, list, runId, signal);
  await using resumePoints = new ResumePoints(deps.resumePoints, list);
  await using lease = session.keepLease();
  const signals = AbortSignal.any([signal, lease.signal]);
  const accepted = { newNetwork: acceptNewNetwork, shrunk: acceptShrunk };
  const shared = { deps, session, resumePoints, list, pageSize, accepted };
  try {
    return await run({ ...shared, signal: signals, tally: new Tally() }, request.isAudit);
  } catch (error) {
    if (lease.signal.aborted) throw lease.signal.reason;
    throw error;
  }
}

/**
 * Opens the sync, waiting for the lease of a worker that may be dead.
 * @throws RetryableError `LIST_BUSY` where the other worker is alive
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
    () => busyElsewhere(list, 'another worker is at it; wait until it has ended'),
  );
}

async function run(context: SyncContext, isAskedFor: boolean): Promise<VerdictWithEvidence> {
  const { session, tally, list } = context;
  const found = await session.situation();
  tally.mode = await chooseMode(context, found, isAskedFor);
  const kind = tally.mode.kind === 'audit' ? 'audit' : 'current';
  let generation = found[kind] ?? (await session.begin(kind, found.epoch));
  for (let stale = 0; ;) {
    try {
      return await readAndClaim(context, generation, stale > 0);
    } catch (error) {
      if (error instanceof StaleResumePoint) {
        stale += 1;
        if (stale > STALE_MAX) {
          throw busyElsewhere(list, 'its resume point keeps changing; wait until others have ended');
        }
        const now = (await session.situation())[generation.kind];
        generation = now ?? (await session.begin('audit', generation.epoch));
      } else if (error instanceof DoubtSeen && generation.kind === 'audit' && generation.sequence > 0n) {
        // The rows that an earlier run had read may be wrong.
        generation = await session.begin('audit', generation.epoch);
      } else if (error instanceof OverlapMissing && generation.kind === 'current') {
        // What is held cannot be read on: the list is read again from its oldest row.
        tally.mode = { kind: 'audit', because: error.state };
        tally.warn(error.state);
        generation = await session.begin('audit', generation.epoch);
        stale = 0;
      } else if (error instanceof DoubtSeen || error instanceof EndNotShown) {
        return refuse(context, generation.epoch, error);
      } else throw error;
    }
  }
}

/** Whether everything is to be read again, and why. */
async function chooseMode(
  context: SyncContext,
  { current, audit, doubts: [open], gaps }: ListSituation,
  isAskedFor: boolean,
): Promise<SyncMode> {
  if (current === undefined) return { kind: 'first reading' };
  const kind = 'audit';
  if (isAskedFor) return { kind, because: 'asked for' };
  if (open !== undefined) return { kind, because: `open doubt: ${open.code}` };
  if (gaps.some(({ isConfirmed }) => !isConfirmed))
    return { kind, because: 'a gap that no audit has confirmed' };
  if (!current.isAppendOnly) return { kind, because: 'the source puts rows between others' };
  if (audit !== undefined) return { kind, because: 'one was begun' };
  if (!current.isClaimed) return { kind: 'first reading' };
  const [gap] = gaps;
  if (gap === undefined) return { kind: 'increment' };
  const [oldest] = (await askPage(context, { newestFirst: false, size: 1 })).rows;
  const isOlder = oldest !== undefined && heightOf(oldest.key) < heightOf(gap.aboveKey);
  return isOlder ? { kind, because: 'the source serves older rows again' } : { kind: 'increment' };
}

/** @throws DoubtSeen, EndNotShown, StaleResumePoint */
async function readAndClaim(
  context: SyncContext,
  generation: Generation,
  byPostgres: boolean,
): Promise<VerdictWithEvidence> {
  const { session, deps, tally, list } = context;
  const remembered = byPostgres ? undefined : await context.resumePoints.read();
  const { point, from } = chooseResumePoint(generation, remembered);
  tally.resumedFrom ??= from;
  const reader = new Reader(context, generation, point);
  const newestKeys = await readToEnd(reader);
  const { height, time } = tally;
  if (generation.headHeight !== null && height !== undefined && height < BigInt(generation.headHeight)) {
    throw doubt(list, 'HEIGHT_WENT_DOWN', "the source's last block lies below an earlier one", {
      before: generation.headHeight,
      now: `${height}`,
    });
  }
  const describe = (
    claimed: Pick<Standing, 'audit' | 'gaps' | 'missing'>,
  ): VerdictWithEvidence['evidence'] => {
    const epoch = generation.epoch + (claimed.audit?.finding === 'new network' ? 1 : 0);
    const { auditedAt } = generation;
    return describeSync(context, { rows: reader.generation.rows, auditedAt, doubts: [], ...claimed, epoch });
  };
  await deps.failpoint?.('claiming');
  const claimed = await session.claim({
    generation,
    sequence: reader.sequence,
    newestKeys,
    height,
    time,
    accepted: context.accepted,
    evidence: (audit, gaps) => describe({ audit, gaps, missing: [] }),
  });
  await deps.failpoint?.('claimed');
  if (claimed.kind === 'stale') throw new StaleResumePoint();
  if (claimed.kind === 'doubt') return refuse(context, generation.epoch, claimed.doubt);
  if (claimed.kind === 'complete') return { verdict: 'complete', evidence: { ...claimed.evidence } };
  const gap = claimed.gaps.find(({ isConfirmed }) => !isConfirmed);
  const missing = gap
    ? { code: 'KNOWN_GAP', belowKey: gap.belowKey, aboveKey: gap.aboveKey }
    : { code: 'NOT_PROVEN' };
  const evidence = describe({ ...claimed, missing: [missing] });
  await session.settle('incomplete', evidence);
  return { verdict: 'incomplete', evidence };
}

/** Records a doubt, or that the source shows no end, and the verdict that follows. */
async function refuse(
  context: SyncContext,
  epochRead: number,
  error: DoubtSeen | EndNotShown,
): Promise<VerdictWithEvidence> {
  const { session } = context;
  const verdict = error instanceof DoubtSeen ? 'suspicious' : 'incomplete';
  if (error instanceof DoubtSeen) await session.openDoubt(epochRead, error);
  const { current, epoch, gaps, doubts } = await session.situation();
  const { rows = 0n, auditedAt } = current ?? {};
  const missing = [{ code: error.code, message: error.message, ...error.meta }];
  const evidence = describeSync(context, { epoch, rows, auditedAt, missing, gaps, doubts });
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

/** One party by filter: whether the source lists it. It is stored without a place in the list, which only a sync can prove. */
export async function lookUpParty(
  id: string,
  deps: Pick<SyncDeps, 'source' | 'store'>,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const row = await deps.source.party(id, signal);
  if (row === undefined) return { verdict: 'complete', evidence: { listed: false } };
  const { wasKnown } = await deps.store.keepParty(row);
  return { verdict: 'complete', evidence: { listed: true, wasKnown } };
}
