/** Brings published segments into the warehouse: of one party, or of every party that has something waiting. */
import {
  errorCode,
  errorLine,
  PermanentError,
  UnreachableError,
} from '../errors/errors.ts';
import { type Verdict, worst } from '../errors/verdict.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { copySegment } from './copy-rows.ts';
import { planReplacements, type Replacement } from './load-plan.ts';
import type { Problem } from './ports.ts';
import { SegmentFault } from './segment-reader.ts';
import type { LoadStore } from './store/load-store.ts';
import type { SegmentRecord } from '../catalog/segment-records.ts';

const CONCURRENCY = 2;
const PAGE_ROWS = 200;
/** Kept of each kind of trouble, for the run's evidence; all of them are counted. */
const KEPT_MAX = 100;
/** Segments may change during a load, which then plans again: so often at most. */
const PLANS_MAX = 20;
/** A bit may flip on the way: an object counts as damaged after so many readings. */
const READINGS_MAX = 2;

export interface LoadDeps {
  readonly repository: LoadStore;
  readonly objects: ObjectStore;
}

type PartyLoad = Readonly<Sums> & { readonly quarantined: readonly FaultySegment[] };
type FaultySegment = Pick<SegmentRecord, 'segmentId' | 'objectKey'> &
  Omit<Problem, 'subject'>;

/**
 * A party that fails does not stop the others; a warehouse or store that cannot be reached does.
 * @returns `incomplete` where a segment was quarantined or a party's load failed; `suspicious` where what was loaded
 *   contradicts itself
 * @throws UnreachableError
 */
export async function loadAll(
  deps: LoadDeps,
  signal: AbortSignal,
  onParty: (load: PartyLoad) => void = () => undefined,
): Promise<Readonly<Totals> & { readonly verdict: Verdict }> {
  const totals = noTotals();
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  const parties = partiesInTurn(deps, either);
  const work = async (): Promise<void> => {
    for await (const partyId of parties) {
      try {
        const load = await loadParty(partyId, deps, either);
        add(totals, load);
        totals.parties += 1;
        totals.quarantinedCount += load.quarantined.length;
        totals.quarantined.push(
          ...load.quarantined.slice(0, KEPT_MAX - totals.quarantined.length),
        );
        onParty(load);
      } catch (error) {
        if (either.aborted || error instanceof UnreachableError) throw error;
        totals.failedCount += 1;
        const failure = { partyId, code: errorCode(error), message: errorLine(error) };
        if (totals.failed.length < KEPT_MAX) totals.failed.push(failure);
      }
    }
  };
  const lane = (): Promise<void> => work().catch((error: unknown) => stop.abort(error));
  await Promise.all(Array.from({ length: CONCURRENCY }, lane));
  signal.throwIfAborted();
  // The first error stops the other lane, and what that one then meets is not the reason.
  if (stop.signal.aborted) throw stop.signal.reason;
  return { verdict: judge(totals), ...totals };
}

/** One generator shared by the lanes: calls of `next` queue up, so each party is handed out once. */
async function* partiesInTurn(
  deps: LoadDeps,
  signal: AbortSignal,
): AsyncGenerator<string> {
  let after: string | undefined;
  for (;;) {
    signal.throwIfAborted();
    const page = await deps.repository.partiesToLoad(after, PAGE_ROWS);
    yield* page;
    after = page.at(-1);
    if (page.length < PAGE_ROWS) return;
  }
}

function nothingLoaded() {
  return {
    segments: 0,
    rows: 0n,
    removedRows: 0n,
    /** Loaded rows whose `effect` contradicts their quantity and accounts; the evidence of their segments has them too. */
    effectsContradicted: 0n,
    /** Segments that wait because what they replace waits for one that is quarantined. */
    heldBack: 0,
  };
}
type Sums = ReturnType<typeof nothingLoaded>;

function noTotals() {
  return {
    parties: 0,
    ...nothingLoaded(),
    quarantined: [] as FaultySegment[],
    quarantinedCount: 0,
    failedCount: 0,
    failed: [] as {
      readonly partyId: string;
      readonly code: string;
      readonly message: string;
    }[],
  };
}
type Totals = ReturnType<typeof noTotals>;

function add(sums: Sums, more: Sums): void {
  sums.segments += more.segments;
  sums.rows += more.rows;
  sums.removedRows += more.removedRows;
  sums.effectsContradicted += more.effectsContradicted;
  sums.heldBack += more.heldBack;
}

function judge({
  quarantinedCount,
  failedCount,
  heldBack,
  effectsContradicted,
}: Totals): Verdict {
  return worst([
    quarantinedCount + failedCount + heldBack === 0 ? 'complete' : 'incomplete',
    effectsContradicted === 0n ? 'complete' : 'suspicious',
  ]);
}

/**
 * Loads every current segment that is not loaded, and removes rows of superseded ones in the transaction
 * that brings their replacement. Segments that cannot be read are quarantined with their reason, and tried
 * again by the next load; the others go on. Doing it again, or twice at once, changes nothing.
 * @throws RetryableError where the warehouse or the store failed; what was committed stays
 */
export async function loadParty(
  partyId: string,
  deps: LoadDeps,
  signal: AbortSignal,
): Promise<PartyLoad> {
  const { repository, objects } = deps;
  const sums = nothingLoaded();
  const quarantined: FaultySegment[] = [];

  /** @returns undefined where the manifest has changed meanwhile. @throws SegmentFault */
  async function replaceOne(replacement: Replacement, readingsLeft = READINGS_MAX) {
    const replaced = { ...nothingLoaded(), segments: replacement.load.length };
    const copy: Parameters<LoadStore['replace']>[2] = async (segment, sink) => {
      const loaded = await copySegment(objects, segment, sink, signal);
      replaced.rows += loaded.rows;
      replaced.effectsContradicted += loaded.effectsContradicted;
      return loaded;
    };
    try {
      const removedRows = await repository.replace(partyId, replacement, copy, signal);
      return removedRows === undefined ? undefined : { ...replaced, removedRows };
    } catch (error) {
      const isRead = error instanceof SegmentFault && error.code !== 'OBJECT_MISSING';
      if (!isRead || readingsLeft === 1) throw error;
      return replaceOne(replacement, readingsLeft - 1);
    }
  }

  for (let plan = 0; plan < PLANS_MAX; plan += 1) {
    signal.throwIfAborted();
    const { pending, stale } = await repository.toLoad(partyId);
    const faulty = new Set(quarantined.map(({ segmentId }) => segmentId));
    const work = planReplacements(pending, stale, faulty);
    if (work.length === 0) {
      const heldBack = pending.filter(({ segmentId }) => !faulty.has(segmentId)).length;
      return { ...sums, heldBack, quarantined };
    }
    for (const replacement of work) {
      signal.throwIfAborted();
      try {
        const replaced = await replaceOne(replacement);
        // The manifest moved on: it is planned again with what it says now.
        if (replaced === undefined) break;
        add(sums, replaced);
      } catch (error) {
        if (!(error instanceof SegmentFault)) throw error;
        const { code, message } = error;
        const { segmentId, objectKey } = error.segment;
        await repository.quarantine(segmentId, { code, message });
        quarantined.push({ code, message, segmentId, objectKey });
      }
    }
  }
  throw new PermanentError(
    `Cannot load ${partyId}: its segments changed ${PLANS_MAX} times meanwhile; load it when its exports have ended`,
    { code: 'LOAD_UNSETTLED', meta: { partyId } },
  );
}
