/**
 * Checks every published object and every loaded row against its recorded sums. Data that
 * was never fetched is listed, but does not fail the verification.
 */
import { errorCode, errorLine, PermanentError } from '../errors/errors.ts';
import { isStoreFault } from '../errors/faults.ts';
import { formatInstant } from '../time/time.ts';
import {
  framesSha256,
  type Manifest,
  readManifest,
} from '../ledger/manifest.ts';
import { manifestKey } from '../ledger/object-keys.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { LakeCheck, LakeCheckOptions, Problem, Reason } from './ports.ts';
import { isLossOfStore, lossOfStore } from '../catalog/missing-objects.ts';
import { readSegment } from './segment-reader.ts';
import type { SegmentRecord } from '../catalog/segment-records.ts';
import type { NeverFetched, VerifyStore } from './store/verify-store.ts';

const PAGE_SEGMENTS = 100;
/** Maximum number of problems that a report lists; all of them are counted. */
const LISTED_MAX = 100;
/**
 * The share of the proven segments that a nightly run proves again: one in 28, so that
 * every segment is proven again within four weeks.
 */
const NIGHTLY_PARTS = 28;

/**
 * After this many consecutive refusals the verification ends, because the store evidently
 * refuses everything.
 */
const REFUSALS_MAX = 20;
export interface VerifyDeps {
  readonly repository: VerifyStore;
  readonly objects: ObjectStore;
  /** Checks the lake; if absent, the lake is not checked. */
  readonly lake?: LakeCheck;
}

export interface VerifyOptions {
  /**
   * `nightly` checks the segments that were published or loaded since their last proof,
   * and a share of the others. `whole`, the default, checks everything.
   */
  readonly scope?: 'nightly' | 'whole';
  /** Whether to recompute the sums of row values in the warehouse and the lake. */
  readonly deep?: boolean;
  /**
   * false if another database owns the store: missing or damaged objects are reported,
   * but no segment is quarantined. Default: true.
   */
  readonly mayDistrust?: boolean;
  /**
   * true if an operator has decided that the missing objects are lost for good. Their
   * segments are quarantined, no matter how many there are, and their ranges are
   * requested from the source again. Default: false.
   */
  readonly isLossAccepted?: boolean;
  readonly onProgress?: (checked: VerifyCounts) => void;
}

export interface VerifyReport {
  readonly verdict: 'complete' | 'failed';
  readonly deep: boolean;
  readonly scope: 'nightly' | 'whole';
  /**
   * Every current segment has been proven at or after this time, RFC 3339; null if at
   * least one has never been proven.
   */
  readonly provenSince: string | null;
  /**
   * Number of this mirror's objects that no segment refers to. They were left by a crash,
   * or published after the backup from which the database was restored.
   */
  readonly objectsNotRecorded: number;
  readonly checked: VerifyCounts;
  readonly problemCount: number;
  readonly problems: readonly Problem[];
  readonly neverFetched: NeverFetched;
}

/** Objects, rows and files checked so far. */
export interface VerifyCounts {
  readonly segments: number;
  readonly objectBytes: bigint;
  readonly loadedSegments: number;
  readonly warehouseRows: bigint;
  readonly lakeFiles: number;
  readonly lakeFilesRead: number;
  readonly lakeRows: bigint;
  /** Number of segments that the next build of the lake will add or remove. */
  readonly lakeSegmentsBehind: number;
}

const NOTHING_CHECKED: VerifyCounts = {
  segments: 0,
  objectBytes: 0n,
  loadedSegments: 0,
  warehouseRows: 0n,
  lakeFiles: 0,
  lakeFilesRead: 0,
  lakeRows: 0n,
  lakeSegmentsBehind: 0,
};

/**
 * Verifies the published objects, the warehouse and the lake. A segment is quarantined
 * only if its object is proven missing, damaged or different. An object that the store
 * refuses to return is only reported as a problem, and so is a store in which many
 * objects are missing at once; no segment is quarantined for either.
 * @throws PermanentError `OBJECT_STORE_…` if the store refuses everything
 * @throws RetryableError if the warehouse or the store could not be read; nothing is
 *   proven in that case
 */
export async function verify(
  deps: VerifyDeps,
  signal: AbortSignal,
  options: VerifyOptions = {},
): Promise<VerifyReport> {
  const { repository, objects } = deps;
  const { scope = 'whole', deep = false } = options;
  const isWhole = scope === 'whole';
  const parts = isWhole ? 1 : NIGHTLY_PARTS;
  const verification = new Verification(deps, signal, options);
  await verification.checkSegments(
    await repository.segmentsToProve(parts),
    deep,
  );
  const store = isWhole
    ? await repository.checkStore(objects, signal)
    : undefined;
  verification.add(store?.problems ?? []);
  verification.add(await repository.inconsistencies(signal, isWhole));
  await verification.checkLake({ deep, parts });

  const { checked, problems, problemCount } = verification;
  return {
    verdict: problemCount === 0 ? 'complete' : 'failed',
    deep,
    scope,
    provenSince: await repository.oldestProof(),
    objectsNotRecorded: store?.notRecorded ?? 0,
    checked,
    problemCount,
    problems,
    neverFetched: await repository.neverFetched(),
  };
}

/** A segment and the reason why its object is not intact. */
interface ObjectFault {
  readonly segment: SegmentRecord;
  readonly reason: Reason;
}

/** One verification: what it has checked and which problems it has found so far. */
class Verification {
  readonly #deps: VerifyDeps;
  readonly #signal: AbortSignal;
  readonly #onProgress: VerifyOptions['onProgress'];
  #checked = NOTHING_CHECKED;
  #problemCount = 0;
  readonly #problems: Problem[] = [];
  /**
   * Segments whose objects are missing. They are quarantined at the end, unless there
   * are too many.
   */
  readonly #missing: ObjectFault[] = [];
  readonly #mayDistrust: boolean;
  readonly #isLossAccepted: boolean;
  #refusalsInSuccession = 0;

  constructor(
    deps: VerifyDeps,
    signal: AbortSignal,
    { mayDistrust = true, isLossAccepted = false, onProgress }: VerifyOptions,
  ) {
    this.#deps = deps;
    this.#signal = signal;
    this.#mayDistrust = mayDistrust;
    this.#isLossAccepted = isLossAccepted;
    this.#onProgress = onProgress;
  }

  get checked(): VerifyCounts {
    return this.#checked;
  }

  get problemCount(): number {
    return this.#problemCount;
  }

  get problems(): readonly Problem[] {
    return this.#problems;
  }

  add(problems: readonly Problem[]): void {
    this.#problemCount += problems.length;
    this.#problems.push(
      ...problems.slice(0, LISTED_MAX - this.#problems.length),
    );
  }

  async checkSegments(
    segmentIds: readonly bigint[],
    isDeep: boolean,
  ): Promise<void> {
    const { repository } = this.#deps;
    for (let start = 0; start < segmentIds.length; start += PAGE_SEGMENTS) {
      const ids = segmentIds.slice(start, start + PAGE_SEGMENTS);
      await this.#checkPage(await repository.segmentsById(ids), isDeep);
    }
    await this.#settleMissing(this.#checked.segments);
  }

  /**
   * Quarantines the segments whose objects are missing, unless so many are missing that
   * the store itself must have lost them.
   */
  async #settleMissing(segments: number): Promise<void> {
    const missing = this.#missing.length;
    if (!this.#isLossAccepted && isLossOfStore(missing, segments)) {
      const { url } = this.#deps.objects;
      const { code, message } = lossOfStore(url, missing, segments);
      this.add([{ code, message, subject: url }]);
      return;
    }
    for (const { segment, reason } of this.#missing) {
      await this.#distrust(segment, reason);
    }
  }

  async #distrust({ segmentId }: SegmentRecord, reason: Reason): Promise<void> {
    if (!this.#mayDistrust) return;
    await this.#deps.repository.distrust(segmentId, reason);
  }

  async #checkPage(
    page: readonly SegmentRecord[],
    isDeep: boolean,
  ): Promise<void> {
    const { repository } = this.#deps;
    const doubtful = new Set<bigint>();
    for (const segment of page) {
      this.#signal.throwIfAborted();
      const isIntact = await this.#checkObject(segment);
      if (!isIntact) doubtful.add(segment.segmentId);
      this.#count({ segments: 1, objectBytes: segment.objectBytes });
      this.#onProgress?.(this.#checked);
    }

    const loaded = page.filter((segment) => segment.isLoaded);
    const rows = await repository.checkRows(loaded, isDeep, this.#signal);
    for (const { segment, rows: warehouseRows, difference } of rows) {
      this.#count({ loadedSegments: 1, warehouseRows });
      if (difference === undefined) continue;
      doubtful.add(segment.segmentId);
      await this.#addIfCurrent(segment, difference);
    }

    const ids = page.map(({ segmentId }) => segmentId);
    await repository.noteProven(ids.filter((id) => !doubtful.has(id)));
  }

  /**
   * Adds a problem if the segment is still current. Exports and loads continue during a
   * verification, so a segment that was replaced after it was listed is not a problem.
   */
  async #addIfCurrent(segment: SegmentRecord, reason: Reason): Promise<void> {
    const [now] = await this.#deps.repository.segmentsById([segment.segmentId]);
    if (now === undefined) return;
    if (segment.isLoaded && !now.isLoaded) return;
    this.add([{ ...reason, subject: segment.objectKey }]);
  }

  /**
   * Checks one object.
   * @returns whether the object and its manifest agree with the database's record
   */
  async #checkObject(segment: SegmentRecord): Promise<boolean> {
    const error = await this.#findObjectFault(segment);
    if (error === undefined) {
      this.#refusalsInSuccession = 0;
      return true;
    }

    const reason = { code: errorCode(error), message: errorLine(error) };
    if (isStoreFault(error)) {
      this.#refusalsInSuccession += 1;
      if (this.#refusalsInSuccession >= REFUSALS_MAX) throw error;
      await this.#addIfCurrent(segment, reason);
      return false;
    }

    this.#refusalsInSuccession = 0;
    await this.#addIfCurrent(segment, reason);
    if (error.code === 'OBJECT_MISSING') {
      this.#missing.push({ segment, reason });
    } else {
      await this.#distrust(segment, reason);
    }
    return false;
  }

  /**
   * Looks for a fault in one object.
   * @returns undefined if the object and its manifest agree with the database's record
   */
  async #findObjectFault(
    segment: SegmentRecord,
  ): Promise<PermanentError | undefined> {
    const { objects } = this.#deps;
    try {
      await this.#proveObject(segment);
      const key = manifestKey(segment.objectKey);
      const manifest = await readManifest(objects, key, this.#signal);
      refuseOtherManifest(manifest, segment);
      return undefined;
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      return error;
    }
  }

  async #proveObject(segment: SegmentRecord): Promise<void> {
    try {
      await this.#readWhole(segment);
    } catch (error) {
      // A bit may have flipped in transit, so an object that appears damaged is read
      // again.
      const isDamaged =
        error instanceof PermanentError &&
        error.code !== 'OBJECT_MISSING' &&
        !isStoreFault(error);
      if (!isDamaged) throw error;
      await this.#readWhole(segment);
    }
  }

  async #readWhole(segment: SegmentRecord): Promise<void> {
    const visitNothing = () => () => undefined;
    const { objects } = this.#deps;
    const reading = readSegment(objects, segment, visitNothing, this.#signal);
    for await (const _ of reading);
  }

  async checkLake(options: LakeCheckOptions): Promise<void> {
    const findings = await this.#deps.lake?.(options, this.#signal);
    if (findings === undefined) return;
    this.#checked = {
      ...this.#checked,
      lakeFiles: findings.files,
      lakeFilesRead: findings.filesRead,
      lakeRows: findings.rows,
      lakeSegmentsBehind: findings.segmentsBehind,
    };
    this.#onProgress?.(this.#checked);
    this.add(findings.problems);
  }

  #count({
    segments = 0,
    objectBytes = 0n,
    loadedSegments = 0,
    warehouseRows = 0n,
  }: Partial<VerifyCounts>): void {
    const checked = this.#checked;
    this.#checked = {
      ...checked,
      segments: checked.segments + segments,
      objectBytes: checked.objectBytes + objectBytes,
      loadedSegments: checked.loadedSegments + loadedSegments,
      warehouseRows: checked.warehouseRows + warehouseRows,
    };
  }
}

/** The fields that a manifest and its segment's row have in common. */
const SAME_IN_MANIFEST = [
  'objectKey',
  'partyId',
  'assetId',
  'from',
  'to',
  'columns',
  'rows',
  'bytes',
  'sha256',
  'objectBytes',
  'objectSha256',
  'digest',
] as const satisfies readonly (keyof SegmentRecord & keyof Manifest)[];

/** Whether a manifest's frames are not those that were published. */
function hasOtherFrames(
  { frames }: Manifest,
  { framesSha256: published }: SegmentRecord,
): boolean {
  // Without frames, readers read the whole object.
  if (frames === undefined || published === null) return false;
  return framesSha256(frames) !== published;
}

/**
 * Compares a manifest with its segment's row.
 * @throws PermanentError `MANIFEST_DIFFERS`
 */
function refuseOtherManifest(manifest: Manifest, segment: SegmentRecord): void {
  const key = manifestKey(segment.objectKey);
  const described = {
    ...manifest,
    from: formatInstant(manifest.from),
    to: formatInstant(manifest.to),
  };
  const differing: string[] = SAME_IN_MANIFEST.filter(
    (name) => String(segment[name]) !== String(described[name]),
  );
  if (hasOtherFrames(manifest, segment)) differing.push('frames');
  if (differing.length === 0) return;
  const message = `The manifest ${key} and mirror.segments differ in ${differing.join(', ')}`;
  const meta = { key, differing };
  throw new PermanentError(message, { code: 'MANIFEST_DIFFERS', meta });
}
