/**
 * Proves what is recorded: every published object and every loaded row agrees with its
 * sums. What was never fetched is listed, and does not fail the verification.
 */
import { errorCode, errorLine, PermanentError } from '../errors/errors.ts';
import { formatInstant } from '../time/time.ts';
import { type Manifest, readManifest } from '../ledger/manifest.ts';
import { manifestKey } from '../ledger/object-keys.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { LakeCheck, LakeCheckOptions, Problem, Reason } from './ports.ts';
import { readSegment } from './segment-reader.ts';
import type { SegmentRecord } from '../catalog/segment-records.ts';
import type { NeverFetched, VerifyStore } from './store/verify-store.ts';

const PAGE_SEGMENTS = 100;
/** How many problems a report lists. All of them are counted. */
const LISTED_MAX = 100;
/**
 * A nightly run proves one in so many of the segments that were proven before: everything
 * is proven again within four weeks.
 */
const NIGHTLY_PARTS = 28;

export interface VerifyDeps {
  readonly repository: VerifyStore;
  readonly objects: ObjectStore;
  /** Absent: the lake is not checked. */
  readonly lake?: LakeCheck;
}

export interface VerifyOptions {
  /**
   * `nightly`: what was published or loaded since its last proof, and a share of the
   * rest. `whole` is the default.
   */
  readonly scope?: 'nightly' | 'whole';
  /** Recomputes the sums of the values of the rows in the warehouse and the lake. */
  readonly deep?: boolean;
  readonly onProgress?: (checked: VerifyCounts) => void;
}

export interface VerifyReport {
  readonly verdict: 'complete' | 'failed';
  readonly deep: boolean;
  readonly scope: 'nightly' | 'whole';
  /** Every current segment was proven since then; null if one never was. RFC 3339. */
  readonly provenSince: string | null;
  /**
   * Objects of this mirror that no segment names: a crash left them, or they were
   * published after a backup that was restored.
   */
  readonly objectsNotRecorded: number;
  readonly checked: VerifyCounts;
  readonly problemCount: number;
  readonly problems: readonly Problem[];
  readonly neverFetched: NeverFetched;
}

/** What was checked so far. */
export interface VerifyCounts {
  readonly segments: number;
  readonly objectBytes: bigint;
  readonly loadedSegments: number;
  readonly warehouseRows: bigint;
  readonly lakeFiles: number;
  readonly lakeFilesRead: number;
  readonly lakeRows: bigint;
  /** Segments that the next build of the lake adds or removes. */
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
 * @throws RetryableError if the warehouse or the store could not be read: then nothing is
 *   proven
 */
export async function verify(
  deps: VerifyDeps,
  signal: AbortSignal,
  { scope = 'whole', deep = false, onProgress }: VerifyOptions = {},
): Promise<VerifyReport> {
  const { repository, objects } = deps;
  const isWhole = scope === 'whole';
  const parts = isWhole ? 1 : NIGHTLY_PARTS;
  const verification = new Verification(deps, signal, onProgress);
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

/** One verification: what it has checked so far, and the problems that it found. */
class Verification {
  readonly #deps: VerifyDeps;
  readonly #signal: AbortSignal;
  readonly #onProgress: VerifyOptions['onProgress'];
  #checked = NOTHING_CHECKED;
  #problemCount = 0;
  readonly #problems: Problem[] = [];

  constructor(
    deps: VerifyDeps,
    signal: AbortSignal,
    onProgress: VerifyOptions['onProgress'],
  ) {
    this.#deps = deps;
    this.#signal = signal;
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
  }

  async #checkPage(
    page: readonly SegmentRecord[],
    isDeep: boolean,
  ): Promise<void> {
    const { repository } = this.#deps;
    const doubtful = new Set<bigint>();
    for (const segment of page) {
      this.#signal.throwIfAborted();
      const fault = await this.#findObjectFault(segment);
      if (fault !== undefined) {
        doubtful.add(segment.segmentId);
        await this.#addIfCurrent(segment, fault);
        await repository.distrust(segment.segmentId, fault);
      }
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
   * Exports and loads go on during a verification: what was replaced since it was listed
   * is not a problem.
   */
  async #addIfCurrent(segment: SegmentRecord, reason: Reason): Promise<void> {
    const [now] = await this.#deps.repository.segmentsById([segment.segmentId]);
    if (now === undefined) return;
    if (segment.isLoaded && !now.isLoaded) return;
    this.add([{ ...reason, subject: segment.objectKey }]);
  }

  /** @returns undefined if the object and its manifest are what the database records */
  async #findObjectFault(segment: SegmentRecord): Promise<Reason | undefined> {
    const { objects } = this.#deps;
    try {
      await this.#proveObject(segment);
      const key = manifestKey(segment.objectKey);
      const manifest = await readManifest(objects, key, this.#signal);
      refuseOtherManifest(manifest, segment);
      return undefined;
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      return { code: errorCode(error), message: errorLine(error) };
    }
  }

  async #proveObject(segment: SegmentRecord): Promise<void> {
    try {
      await this.#readWhole(segment);
    } catch (error) {
      // A bit that flipped on the way is not in the object, so what reads as damaged is
      // read again.
      const isDamaged =
        error instanceof PermanentError && error.code !== 'OBJECT_MISSING';
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

/** What a manifest and its segment's row record alike. */
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

/** @throws PermanentError `MANIFEST_DIFFERS` */
function refuseOtherManifest(manifest: Manifest, segment: SegmentRecord): void {
  const key = manifestKey(segment.objectKey);
  const described = {
    ...manifest,
    from: formatInstant(manifest.from),
    to: formatInstant(manifest.to),
  };
  const differing = SAME_IN_MANIFEST.filter(
    (name) => String(segment[name]) !== String(described[name]),
  );
  if (differing.length === 0) return;
  const message = `The manifest ${key} and mirror.segments differ in ${differing.join(', ')}`;
  const meta = { key, differing };
  throw new PermanentError(message, { code: 'MANIFEST_DIFFERS', meta });
}
