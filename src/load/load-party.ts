/** Brings published segments of one party into the warehouse. */
import { PermanentError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { CopyRows } from './copy-rows.ts';
import { planReplacements } from './plan.ts';
import type { LoadedSums, QuarantineReason, Replacement, RowSink } from './ports.ts';
import { readSegment } from './segment-reader.ts';
import type { LoadStore } from './store/load-store.ts';
import type { SegmentRecord } from './store/segment-records.ts';

export interface LoadDeps {
  readonly repository: LoadStore;
  readonly objects: ObjectStore;
}

export interface FaultySegment extends QuarantineReason {
  readonly segmentId: bigint;
  readonly objectKey: string;
}

export interface PartyLoad {
  readonly segments: number;
  readonly rows: bigint;
  readonly removedRows: bigint;
  /** Loaded rows whose `effect` contradicts their quantity and accounts. */
  readonly effectsContradicted: bigint;
  readonly quarantined: readonly FaultySegment[];
  /** Segments that wait because what they replace waits for one that is quarantined. */
  readonly heldBack: number;
}

/** Segments may change during a load, which then plans again: so often at most. */
const PLANS_MAX = 20;

/** A bit may flip on the way: an object counts as damaged after so many readings. */
const READINGS_MAX = 2;

/** A segment's own fault, told apart from the warehouse's and the store's. */
class SegmentFault extends Error {
  readonly segment: SegmentRecord;
  override readonly cause: PermanentError;

  constructor(segment: SegmentRecord, cause: PermanentError) {
    super(cause.message);
    this.segment = segment;
    this.cause = cause;
  }
}

/**
 * Loads every current segment that is not loaded, and removes rows of superseded ones in the transaction
 * that brings their replacement. Segments that cannot be read are quarantined with their reason, and tried
 * again by the next load; the others go on. Doing it again, or twice at once, changes nothing.
 * @throws RetryableError where the warehouse or the store failed; what was committed stays
 */
export async function loadParty(partyId: string, deps: LoadDeps, signal: AbortSignal): Promise<PartyLoad> {
  const sums = { segments: 0, rows: 0n, removedRows: 0n, effectsContradicted: 0n };
  const quarantined: FaultySegment[] = [];
  for (let plan = 0; plan < PLANS_MAX; plan += 1) {
    signal.throwIfAborted();
    const { pending, stale } = await deps.repository.toLoad(partyId);
    const faulty = new Set(quarantined.map(({ segmentId }) => segmentId));
    const work = planReplacements(pending, stale, faulty);
    if (work.length === 0) {
      const heldBack = pending.filter(({ segmentId }) => !faulty.has(segmentId)).length;
      return { ...sums, quarantined, heldBack };
    }
    for (const replacement of work) {
      signal.throwIfAborted();
      try {
        const replaced = await replaceOne(partyId, replacement, deps, signal);
        // The manifest moved on: it is planned again with what it says now.
        if (replaced === undefined) break;
        sums.segments += replacement.load.length;
        sums.rows += replaced.rows;
        sums.removedRows += replaced.removedRows;
        sums.effectsContradicted += replaced.effectsContradicted;
      } catch (error) {
        if (!(error instanceof SegmentFault)) throw error;
        quarantined.push(await quarantine(error, deps.repository));
      }
    }
  }
  throw new PermanentError(
    `Cannot load ${partyId}: its segments changed ${PLANS_MAX} times meanwhile; load it when its exports have ended`,
    { code: 'LOAD_UNSETTLED', meta: { partyId } },
  );
}

/** @returns undefined where the manifest has changed meanwhile. @throws SegmentFault */
async function replaceOne(
  partyId: string,
  replacement: Replacement,
  deps: LoadDeps,
  signal: AbortSignal,
): Promise<Pick<PartyLoad, 'rows' | 'removedRows' | 'effectsContradicted'> | undefined> {
  for (let reading = 1; ; reading += 1) {
    let [rows, effectsContradicted] = [0n, 0n];
    try {
      const removedRows = await deps.repository.replace(
        partyId,
        replacement,
        async (segment, sink) => {
          const loaded = await copySegment(segment, sink, deps.objects, signal);
          rows += loaded.rows;
          effectsContradicted += loaded.effectsContradicted;
          return loaded;
        },
        signal,
      );
      return removedRows === undefined ? undefined : { rows, removedRows, effectsContradicted };
    } catch (error) {
      const isRead = error instanceof SegmentFault && error.cause.code !== 'OBJECT_MISSING';
      if (!isRead || reading >= READINGS_MAX) throw error;
    }
  }
}

async function copySegment(
  segment: SegmentRecord,
  sink: RowSink,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<LoadedSums> {
  const rows = new CopyRows(segment);
  const reading = readSegment(objects, segment, rows, signal);
  try {
    for (;;) {
      const step = await reading.next().catch((error: unknown) => {
        throw error instanceof PermanentError ? new SegmentFault(segment, error) : error;
      });
      if (step.done === true) return rows.sums();
      const months = rows.take();
      if (months.length > 0) await sink.write(months);
    }
  } finally {
    await reading.return(undefined);
  }
}

async function quarantine(fault: SegmentFault, repository: LoadStore): Promise<FaultySegment> {
  const reason = { code: fault.cause.code, message: fault.message };
  await repository.quarantine(fault.segment.segmentId, reason);
  return { ...reason, segmentId: fault.segment.segmentId, objectKey: fault.segment.objectKey };
}
