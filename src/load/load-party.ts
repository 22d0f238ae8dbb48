/** Brings published segments of one party into the warehouse. */
import { PermanentError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { CopyRows } from './copy-rows.ts';
import { planReplacements, type Replacement } from './plan.ts';
import type { Problem } from './ports.ts';
import { readSegment, SegmentFault } from './segment-reader.ts';
import type { LoadStore } from './store/load-store.ts';
import type { SegmentRecord } from './store/segment-records.ts';

export interface LoadDeps {
  readonly repository: LoadStore;
  readonly objects: ObjectStore;
}

export type FaultySegment = Pick<SegmentRecord, 'segmentId' | 'objectKey'> & Omit<Problem, 'subject'>;

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
        const { code, message, segment } = error;
        await deps.repository.quarantine(segment.segmentId, { code, message });
        quarantined.push({ code, message, segmentId: segment.segmentId, objectKey: segment.objectKey });
      }
    }
  }
  throw new PermanentError(
    `Cannot load ${partyId}: its segments changed ${PLANS_MAX} times meanwhile; load it when its exports have ended`,
    { code: 'LOAD_UNSETTLED', meta: { partyId } },
  );
}

/** @returns undefined where the manifest has changed meanwhile. @throws SegmentFault */
async function replaceOne(partyId: string, replacement: Replacement, deps: LoadDeps, signal: AbortSignal) {
  for (let reading = 1; ; reading += 1) {
    let [rows, effectsContradicted] = [0n, 0n];
    try {
      const removedRows = await deps.repository.replace(
        partyId,
        replacement,
        async (segment, sink) => {
          const copied = new CopyRows(segment);
          for await (const read of readSegment(deps.objects, segment, copied, signal)) {
            const months = read.take();
            if (months.length > 0) await sink.write(months);
          }
          const loaded = copied.sums();
          rows += loaded.rows;
          effectsContradicted += loaded.effectsContradicted;
          return loaded;
        },
        signal,
      );
      return removedRows === undefined ? undefined : { rows, removedRows, effectsContradicted };
    } catch (error) {
      const isRead = error instanceof SegmentFault && error.code !== 'OBJECT_MISSING';
      if (!isRead || reading >= READINGS_MAX) throw error;
    }
  }
}
