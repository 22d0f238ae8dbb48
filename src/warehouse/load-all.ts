/**
 * Loads published segments into the warehouse: the segments of one party, or of every
 * party with something to load.
 */
import {
  errorCode,
  errorLine,
  PermanentError,
  UnreachableError,
} from '../errors/errors.ts';
import { type Verdict, worst } from '../errors/verdict.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { isLossOfStore, lossOfStore } from '../catalog/missing-objects.ts';
import { copySegment } from './copy-rows.ts';
import type { LineFiles } from './line-files.ts';
import { planReplacements, type Replacement } from './load-plan.ts';
import { SegmentFault } from './segment-reader.ts';
import type { LoadStore, WriteSegment } from './store/load-store.ts';

const CONCURRENCY = 2;
const PAGE_ROWS = 200;
/**
 * Maximum number of failures of each kind that the evidence lists; all of them are
 * counted.
 */
const LISTED_MAX = 100;
/** Maximum number of plans for one load, in case segments keep changing while it runs. */
const PLANS_MAX = 20;
/**
 * How many reads must find an object damaged before it is considered damaged. A single
 * bad read may be due to a bit that flipped in transit.
 */
const READINGS_MAX = 2;

export interface LoadDeps {
  readonly repository: LoadStore;
  readonly objects: ObjectStore;
  /** Files for the lines that are loaded; absent if no build of the lake follows. */
  readonly lineFiles?: LineFiles | undefined;
}

/** A segment that could not be loaded. */
export interface FaultySegment {
  readonly segmentId: bigint;
  readonly objectKey: string;
  readonly code: string;
  readonly message: string;
}

/** A party whose load failed for a reason other than one of its segments. */
export interface FailedParty {
  readonly partyId: string;
  readonly code: string;
  readonly message: string;
}

/** Rows and segments loaded and removed, for one party or for all. */
export interface LoadSums {
  readonly segments: number;
  readonly rows: bigint;
  /** Number of removed rows that belonged to superseded segments. */
  readonly removedRows: bigint;
  /**
   * Loaded rows whose `effect` contradicts their quantity and accounts. They are also
   * counted in the evidence of their segments.
   */
  readonly effectsContradicted: bigint;
  /**
   * Number of segments that cannot be loaded yet, because they must be loaded together
   * with another segment that is quarantined.
   */
  readonly heldBack: number;
}

/** The result of loading one party. */
export interface PartyLoad extends LoadSums {
  readonly quarantined: readonly FaultySegment[];
  /**
   * Segments whose objects are missing. The caller, which knows how many are missing in
   * total, decides whether to quarantine them.
   */
  readonly missing: readonly FaultySegment[];
}

/** The result of loading all parties. */
export interface LoadReport extends LoadSums {
  readonly verdict: Verdict;
  readonly parties: number;
  readonly quarantined: readonly FaultySegment[];
  readonly quarantinedCount: number;
  readonly failed: readonly FailedParty[];
  readonly failedCount: number;
}

const NOTHING_LOADED: LoadSums = {
  segments: 0,
  rows: 0n,
  removedRows: 0n,
  effectsContradicted: 0n,
  heldBack: 0,
};

/**
 * Loads every party that has something to load. If a party fails, the other parties are
 * still loaded; if the warehouse or the store is unreachable, the load ends.
 * @returns the verdict `incomplete` if a segment was quarantined or the load of a party
 *   failed, `suspicious` if the loaded rows contradict themselves
 * @throws UnreachableError
 * @throws PermanentError `OBJECTS_MISSING` if so many objects are missing that the store
 *   must be at fault. In that case none of these segments is quarantined, and the other
 *   segments are loaded
 */
export async function loadAll(
  deps: LoadDeps,
  signal: AbortSignal,
  onParty: (load: PartyLoad) => void = () => undefined,
): Promise<LoadReport> {
  const totals = new LoadTotals();
  const stop = new AbortController();
  const either = AbortSignal.any([signal, stop.signal]);
  // The loaders share one generator. Its calls to `next` queue up, so each party is
  // handed out once.
  const parties = listPartiesToLoad(deps, either);

  async function loadParties(): Promise<void> {
    for await (const partyId of parties) {
      try {
        const load = await loadParty(partyId, deps, either);
        totals.add(load);
        onParty(load);
      } catch (error) {
        if (either.aborted || error instanceof UnreachableError) throw error;
        totals.addFailure(partyId, error);
      }
    }
  }

  const loaders = Array.from({ length: CONCURRENCY }, () =>
    loadParties().catch((error: unknown) => stop.abort(error)),
  );
  await Promise.all(loaders);
  signal.throwIfAborted();
  // Throw the first error. It also stopped the other loader, which then failed only
  // because it was stopped.
  if (stop.signal.aborted) throw stop.signal.reason;
  await settleMissing(totals, deps);
  return totals.report();
}

/**
 * Quarantines the segments whose objects are missing, unless so many are missing that
 * the store itself must have lost them.
 */
async function settleMissing(
  totals: LoadTotals,
  { repository, objects }: LoadDeps,
): Promise<void> {
  const { missing, read } = totals;
  if (isLossOfStore(missing.length, read)) {
    throw lossOfStore(objects.url, missing.length, read);
  }
  for (const { segmentId, code, message } of missing) {
    await repository.quarantine(segmentId, { code, message });
  }
  totals.addQuarantined(missing);
}

async function* listPartiesToLoad(
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

/** Adds up the loads of all parties. */
class LoadTotals {
  #sums = NOTHING_LOADED;
  #parties = 0;
  #quarantinedCount = 0;
  readonly #quarantined: FaultySegment[] = [];
  readonly #missing: FaultySegment[] = [];
  #failedCount = 0;
  readonly #failed: FailedParty[] = [];

  /** All segments whose objects are missing, quarantined or not. */
  get missing(): readonly FaultySegment[] {
    return this.#missing;
  }

  /** How many segments were read, including missing and quarantined ones. */
  get read(): number {
    const { segments } = this.#sums;
    return segments + this.#missing.length + this.#quarantinedCount;
  }

  add({ quarantined, missing, ...sums }: PartyLoad): void {
    this.#sums = addSums(this.#sums, sums);
    this.#parties += 1;
    this.#missing.push(...missing);
    this.addQuarantined(quarantined);
  }

  addQuarantined(quarantined: readonly FaultySegment[]): void {
    this.#quarantinedCount += quarantined.length;
    const room = LISTED_MAX - this.#quarantined.length;
    this.#quarantined.push(...quarantined.slice(0, room));
  }

  addFailure(partyId: string, error: unknown): void {
    this.#failedCount += 1;
    if (this.#failed.length >= LISTED_MAX) return;
    this.#failed.push({
      partyId,
      code: errorCode(error),
      message: errorLine(error),
    });
  }

  report(): LoadReport {
    const { heldBack, effectsContradicted } = this.#sums;
    const missing = this.#quarantinedCount + this.#failedCount + heldBack;
    return {
      verdict: worst([
        missing === 0 ? 'complete' : 'incomplete',
        effectsContradicted === 0n ? 'complete' : 'suspicious',
      ]),
      parties: this.#parties,
      ...this.#sums,
      quarantined: this.#quarantined,
      quarantinedCount: this.#quarantinedCount,
      failedCount: this.#failedCount,
      failed: this.#failed,
    };
  }
}

function addSums(a: LoadSums, b: LoadSums): LoadSums {
  return {
    segments: a.segments + b.segments,
    rows: a.rows + b.rows,
    removedRows: a.removedRows + b.removedRows,
    effectsContradicted: a.effectsContradicted + b.effectsContradicted,
    heldBack: a.heldBack + b.heldBack,
  };
}

/**
 * Loads every current segment of a party that is not loaded, and removes the rows of
 * superseded segments in the transaction that adds their replacement. A segment that
 * cannot be read is quarantined with its reason, and the next load tries it again; a
 * segment whose object is missing is returned as missing. The other segments are still
 * loaded. The load is idempotent, even if two of them run concurrently.
 * @throws PermanentError `OBJECT_STORE_…` if the store refuses to return an object. No
 *   segment is quarantined for that, and the next load tries again
 * @throws RetryableError if the warehouse or the store failed; committed segments stay
 *   loaded
 */
export async function loadParty(
  partyId: string,
  deps: LoadDeps,
  signal: AbortSignal,
): Promise<PartyLoad> {
  const { repository } = deps;
  const quarantined: FaultySegment[] = [];
  const missing: FaultySegment[] = [];
  const faulty = new Set<bigint>();
  let sums = NOTHING_LOADED;

  for (let plan = 0; plan < PLANS_MAX; plan += 1) {
    signal.throwIfAborted();
    const { pending, stale } = await repository.toLoad(partyId);
    const replacements = planReplacements(pending, stale, faulty);
    if (replacements.length === 0) {
      const waiting = pending.filter(({ segmentId }) => !faulty.has(segmentId));
      return { ...sums, heldBack: waiting.length, quarantined, missing };
    }

    for (const replacement of replacements) {
      signal.throwIfAborted();
      try {
        const replaced = await replaceSegments(
          partyId,
          replacement,
          deps,
          signal,
        );
        // The manifest table has changed, so the rest is planned again.
        if (replaced === undefined) break;
        sums = addSums(sums, replaced);
      } catch (error) {
        if (!(error instanceof SegmentFault)) throw error;
        const { code, message } = error;
        const { segmentId, objectKey } = error.segment;
        const fault = { code, message, segmentId, objectKey };
        faulty.add(segmentId);
        if (code === 'OBJECT_MISSING') {
          missing.push(fault);
          continue;
        }
        await repository.quarantine(segmentId, { code, message });
        quarantined.push(fault);
      }
    }
  }

  throw new PermanentError(
    `Cannot load ${partyId}: its segments changed ${PLANS_MAX} times during the load; ` +
      'load it when its exports have ended',
    { code: 'LOAD_UNSETTLED', meta: { partyId } },
  );
}

/**
 * Carries out one replacement. An object that appears to be damaged is read a second
 * time.
 * @returns undefined if the manifest table has changed since the plan was made
 * @throws SegmentFault
 */
async function replaceSegments(
  partyId: string,
  replacement: Replacement,
  { repository, objects, lineFiles }: LoadDeps,
  signal: AbortSignal,
): Promise<LoadSums | undefined> {
  const ids = replacement.load.map(({ segmentId }) => segmentId);
  for (let reading = 1; ; reading += 1) {
    let rows = 0n;
    let effectsContradicted = 0n;
    const write: WriteSegment = async (segment, sink) => {
      const both = lineFiles?.copyTo(segment.segmentId, sink) ?? sink;
      const loaded = await copySegment(objects, segment, both, signal);
      rows += loaded.rows;
      effectsContradicted += loaded.effectsContradicted;
      return loaded;
    };
    try {
      const removedRows = await repository.replace(
        partyId,
        replacement,
        write,
        signal,
      );
      lineFiles?.end(ids, removedRows !== undefined);
      if (removedRows === undefined) return undefined;
      const segments = replacement.load.length;
      return {
        ...NOTHING_LOADED,
        segments,
        rows,
        removedRows,
        effectsContradicted,
      };
    } catch (error) {
      lineFiles?.end(ids, false);
      const isDamaged =
        error instanceof SegmentFault && error.code !== 'OBJECT_MISSING';
      if (!isDamaged || reading === READINGS_MAX) throw error;
    }
  }
}
