/**
 * Brings one list up to date. First reading, increment and audit are one: a generation is read on, oldest
 * first, until the newest page shows that its end is reached, and then claimed.
 */
import { heightOf } from '../core/ids.ts';
import { RetryableError, type PermanentError } from '../core/errors.ts';
import type { VerdictWithEvidence } from '../core/verdict.ts';
import { waitFor } from '../core/waiting.ts';
import { askPage, Tally, type SyncContext, type SyncDeps } from './context.ts';
import { readToEnd } from './end.ts';
import { describeSync, type Evidence, type Missing, type Standing, type SyncMode } from './evidence.ts';
import { doubt, DoubtSeen, EndNotShown, type Accepted } from './guards.ts';
import type { ListName } from './ports.ts';
import { OverlapMissing, Reader } from './reader.ts';
import { chooseResumePoint, type ResumedFrom, resumeKey, ResumePointWriter } from './resume-point.ts';
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
  const { list, runId } = request;
  const session = await openSession(deps.store, list, runId, signal);
  await using writer = new ResumePointWriter(deps.resumePoints, list);
  await using lease = session.keepLease();
  const ended = new AbortController();
  const context: SyncContext = {
    deps,
    session,
    writer,
    list,
    signal: AbortSignal.any([signal, lease.signal, ended.signal]),
    tally: new Tally(),
    pageSize: request.pageSize,
  };
  try {
    return await new Sync(request, context).run();
  } catch (error) {
    if (lease.signal.aborted) throw lease.signal.reason;
    throw error;
  } finally {
    // In-flight pages are abandoned.
    ended.abort();
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

class Sync {
  readonly #request: SyncRequest;
  readonly #context: SyncContext;
  readonly #accepted: Accepted;
  #mode: SyncMode = { kind: 'increment' };
  #resumedFrom: ResumedFrom | undefined;

  constructor(request: SyncRequest, context: SyncContext) {
    this.#request = request;
    this.#context = context;
    this.#accepted = { newNetwork: request.acceptNewNetwork === true, shrunk: request.acceptShrunk === true };
  }

  async run(): Promise<VerdictWithEvidence> {
    const { session } = this.#context;
    const found = await session.situation();
    this.#mode = await this.#chooseMode(found);
    let generation = await this.#chooseGeneration(found);
    for (let stale = 0; ;) {
      try {
        const outcome = await this.#readAndClaim(generation, stale > 0);
        if (outcome !== 'stale') return outcome;
        if ((stale += 1) > STALE_MAX) {
          throw busyElsewhere(
            this.#request.list,
            'its resume point keeps changing; wait until others have ended',
          );
        }
        generation = await this.#again(generation);
      } catch (error) {
        const isLeft = generation.kind === 'audit' && generation.sequence > 0n;
        if (isLeft && (error instanceof OverlapMissing || error instanceof DoubtSeen)) {
          // The rows that an earlier run had read may be wrong.
          generation = await session.begin('audit', generation.epoch);
        } else if (error instanceof OverlapMissing && generation.kind === 'current') {
          generation = await this.#rebuild(generation.epoch, error);
          stale = 0;
        } else if (error instanceof OverlapMissing) {
          return this.#doubt(generation.epoch, doubt(this.#request.list, 'OVERLAP_MISSING', error.message));
        } else if (error instanceof DoubtSeen) {
          return this.#doubt(generation.epoch, error);
        } else if (error instanceof EndNotShown) {
          return this.#settle('incomplete', await this.#describeRefusal(error));
        } else throw error;
      }
    }
  }

  /** Why everything is to be read again, if it is. */
  async #chooseMode({ current, audit, doubts, gaps }: ListSituation): Promise<SyncMode> {
    if (current === undefined) return { kind: 'first reading' };
    const kind = 'audit';
    if (this.#request.isAudit) return { kind, because: 'asked for' };
    const [open] = doubts;
    if (open !== undefined) return { kind, because: `open doubt: ${open.code}` };
    if (gaps.some(({ isConfirmed }) => !isConfirmed))
      return { kind, because: 'a gap that no audit has confirmed' };
    if (!current.isAppendOnly) return { kind, because: 'the source puts rows between others' };
    if (audit !== undefined) return { kind, because: 'one was begun' };
    if (!current.isClaimed) return { kind: 'first reading' };
    const [gap] = gaps;
    if (gap !== undefined && (await this.#servesOlder(gap.aboveKey))) {
      return { kind, because: 'the source serves older rows again' };
    }
    return { kind: 'increment' };
  }

  async #servesOlder(aboveKey: string): Promise<boolean> {
    const { rows } = await askPage(this.#context, { newestFirst: false, size: 1 });
    const [first] = rows;
    return first !== undefined && heightOf(first.key) < heightOf(aboveKey);
  }

  async #chooseGeneration({ epoch, current, audit }: ListSituation): Promise<Generation> {
    const { session } = this.#context;
    if (this.#mode.kind !== 'audit') return current ?? session.begin('current', epoch);
    return audit ?? session.begin('audit', epoch);
  }

  /** The generation as Postgres has it now. */
  async #again({ generationId, epoch }: Generation): Promise<Generation> {
    const { current, audit } = await this.#context.session.situation();
    const found = [current, audit].find((one) => one?.generationId === generationId);
    return found ?? this.#context.session.begin('audit', epoch);
  }

  /** What is held cannot be read on: the list is read again from its oldest row. */
  async #rebuild(epoch: number, { message }: OverlapMissing): Promise<Generation> {
    this.#mode = { kind: 'audit', because: message };
    this.#context.tally.warn(message);
    return this.#context.session.begin('audit', epoch);
  }

  async #readAndClaim(generation: Generation, byPostgres: boolean): Promise<VerdictWithEvidence | 'stale'> {
    const { session, deps, tally } = this.#context;
    const remembered = byPostgres
      ? undefined
      : await deps.resumePoints.get(resumeKey(session.list)).catch(() => undefined);
    const { point, from } = chooseResumePoint(generation, remembered);
    this.#resumedFrom ??= from;
    const reader = new Reader(this.#context, generation, point);
    const newestKeys = await readToEnd(this.#context, reader);
    if (newestKeys === 'stale') return 'stale';
    const { height, time } = tally;
    if (generation.headHeight !== null && height !== undefined && height < BigInt(generation.headHeight)) {
      throw doubt(session.list, 'HEIGHT_WENT_DOWN', "the source's last block lies below an earlier one", {
        before: generation.headHeight,
        now: `${height}`,
      });
    }
    const standing = { rows: reader.rows, auditedAt: generation.auditedAt, doubts: [] };
    const describe = (claimed: Pick<Standing, 'audit' | 'gaps' | 'missing'>): Evidence => {
      const epoch = generation.epoch + (claimed.audit?.finding === 'new network' ? 1 : 0);
      return this.#describe({ ...standing, ...claimed, epoch });
    };
    await deps.failpoint?.('claiming');
    const claimed = await session.claim({
      generation,
      sequence: reader.sequence,
      newestKeys,
      height,
      time,
      accepted: this.#accepted,
      evidence: (audit, gaps) => describe({ audit, gaps, missing: [] }),
    });
    await deps.failpoint?.('claimed');
    if (claimed.kind === 'stale') return 'stale';
    if (claimed.kind === 'doubt') return this.#doubt(generation.epoch, claimed.doubt);
    if (claimed.kind === 'complete') return { verdict: 'complete', evidence: { ...claimed.evidence } };
    const { audit, gaps } = claimed;
    const gap = gaps.find(({ isConfirmed }) => !isConfirmed);
    const missing =
      gap === undefined
        ? [{ code: 'NOT_PROVEN' }]
        : [{ code: 'KNOWN_GAP', belowKey: gap.belowKey, aboveKey: gap.aboveKey }];
    return this.#settle('incomplete', describe({ audit, gaps, missing }));
  }

  async #doubt(epoch: number, seen: PermanentError): Promise<VerdictWithEvidence> {
    await this.#context.session.openDoubt(epoch, seen);
    return this.#settle('suspicious', await this.#describeRefusal(seen));
  }

  async #settle(verdict: 'incomplete' | 'suspicious', evidence: Evidence): Promise<VerdictWithEvidence> {
    await this.#context.session.settle(verdict, evidence);
    return { verdict, evidence };
  }

  async #describeRefusal({ code, message, meta }: PermanentError): Promise<Evidence> {
    const { current, gaps, doubts, epoch } = await this.#context.session.situation();
    const missing: Missing = { code, message, ...meta };
    const { rows = 0n, auditedAt } = current ?? {};
    return this.#describe({ epoch, rows, auditedAt, missing: [missing], gaps, doubts });
  }

  #describe(standing: Omit<Standing, 'mode' | 'resumedFrom'>): Evidence {
    return describeSync(this.#context, { ...standing, mode: this.#mode, resumedFrom: this.#resumedFrom });
  }
}

function busyElsewhere(list: ListName, state: string): RetryableError {
  return new RetryableError(`Cannot sync ${list}: ${state}`, {
    code: 'LIST_BUSY',
    meta: { list },
    retryAfterMs: WAIT_FOR_LEASE_MS,
  });
}
