/**
 * Proves what is recorded: every published object and every loaded row agrees with its sums. What was
 * never fetched is told, not failed.
 */
import { errorCode, errorLine, PermanentError } from '../core/errors.ts';
import { formatInstant } from '../core/time.ts';
import { type Manifest, readManifest } from '../ledger/objects/manifest.ts';
import { manifestKey } from '../ledger/objects/object-keys.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { LakeCheck, LakeCheckOptions, Problem } from './ports.ts';
import { readSegment } from './segment-reader.ts';
import type { SegmentRecord } from './store/segment-records.ts';
import type { NeverFetched, VerifyStore } from './store/verify-store.ts';

const PAGE_SEGMENTS = 100;
const PROBLEMS_KEPT_MAX = 100;
/** Each nightly run proves one in so many of what was proven before: everything within four weeks. */
const NIGHTLY_PARTS = 28;
const NO_ROWS = { header: () => undefined, row: () => undefined };

export interface VerifyDeps {
  readonly repository: VerifyStore;
  readonly objects: ObjectStore;
  readonly lake?: LakeCheck;
}

export interface VerifyOptions {
  /** `nightly`: what was published or loaded since its last proof, and a share of the rest; otherwise everything. */
  readonly scope?: 'nightly' | 'whole';
  /** Recompute the values' sums of the rows in the warehouse and the lake. */
  readonly deep?: boolean;
  readonly onProgress?: (checked: Readonly<VerifyCounts>) => void;
}

export interface VerifyReport {
  readonly verdict: 'complete' | 'failed';
  readonly deep: boolean;
  readonly scope: 'nightly' | 'whole';
  /** Each current segment was proven since then; null where one never was. RFC 3339. */
  readonly provenSince: string | null;
  /** Objects of this mirror that no segment names: left by a crash, or published after a backup that was restored. */
  readonly objectsNotRecorded: number;
  readonly checked: VerifyCounts;
  readonly problemCount: number;
  readonly problems: readonly Problem[];
  readonly neverFetched: NeverFetched;
}
export type VerifyCounts = Verification['checked'];

/** @throws RetryableError where the warehouse or the store could not be asked: then nothing is proven */
export async function verify(
  deps: VerifyDeps,
  signal: AbortSignal,
  { scope = 'whole', deep = false, onProgress }: VerifyOptions = {},
): Promise<VerifyReport> {
  const { repository } = deps;
  const isFull = scope === 'whole';
  const parts = isFull ? 1 : NIGHTLY_PARTS;
  const verification = new Verification(deps, signal, onProgress);
  await verification.checkSegments(await repository.segmentsToProve(parts), deep);
  const store = isFull ? await repository.checkStore(deps.objects, signal) : undefined;
  verification.add([...(store?.problems ?? []), ...(await repository.inconsistencies(signal, isFull))]);
  await verification.checkLake({ deep, parts });
  const { problems, problemCount, checked } = verification;
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

class Verification {
  readonly problems: Problem[] = [];
  problemCount = 0;
  readonly checked = {
    segments: 0,
    objectBytes: 0n,
    loadedSegments: 0,
    warehouseRows: 0n,
    lakeFiles: 0,
    lakeFilesRead: 0,
    lakeRows: 0n,
    /** Segments that the next build of the lake brings or takes away. */
    lakeSegmentsBehind: 0,
  };
  readonly #deps: VerifyDeps;
  readonly #signal: AbortSignal;
  readonly #onProgress: VerifyOptions['onProgress'];
  /** Of the page in hand: something of them does not agree. */
  readonly #suspects = new Set<bigint>();

  constructor(deps: VerifyDeps, signal: AbortSignal, onProgress: VerifyOptions['onProgress']) {
    this.#deps = deps;
    this.#signal = signal;
    this.#onProgress = onProgress;
  }

  async checkSegments(ids: readonly bigint[], isDeep: boolean): Promise<void> {
    const { repository } = this.#deps;
    for (let start = 0; start < ids.length; start += PAGE_SEGMENTS) {
      const page = await repository.segmentsById(ids.slice(start, start + PAGE_SEGMENTS));
      this.#suspects.clear();
      for (const segment of page) {
        this.#signal.throwIfAborted();
        await this.#checkObject(segment);
        this.checked.segments += 1;
        this.checked.objectBytes += segment.objectBytes;
        this.#onProgress?.(this.checked);
      }
      const loaded = page.filter((segment) => segment.isLoaded);
      for (const { segment, rows, difference } of await repository.checkRows(loaded, isDeep, this.#signal)) {
        this.checked.loadedSegments += 1;
        this.checked.warehouseRows += rows;
        if (difference) await this.#addIfCurrent(segment, difference);
      }
      const read = page.map(({ segmentId }) => segmentId);
      await repository.noteProven(read.filter((id) => !this.#suspects.has(id)));
    }
  }

  async #checkObject(segment: SegmentRecord): Promise<void> {
    const { repository, objects } = this.#deps;
    const read = async (): Promise<void> => {
      const reading = readSegment(objects, segment, NO_ROWS, this.#signal);
      while ((await reading.next()).done !== true);
    };
    try {
      // A bit that flipped on the way is not in the object.
      await read().catch((error: unknown) => {
        if (!(error instanceof PermanentError) || error.code === 'OBJECT_MISSING') throw error;
        return read();
      });
      const manifest = await readManifest(objects, manifestKey(segment.objectKey), this.#signal);
      refuseOther(manifest, segment);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      const reason = { code: errorCode(error), message: errorLine(error) };
      await this.#addIfCurrent(segment, reason);
      await repository.distrust(segment.segmentId, reason);
    }
  }

  async checkLake(options: LakeCheckOptions): Promise<void> {
    const found = await this.#deps.lake?.(options, this.#signal);
    if (found === undefined) return;
    const { files: lakeFiles, filesRead: lakeFilesRead, rows: lakeRows, segmentsBehind } = found;
    Object.assign(this.checked, { lakeFiles, lakeFilesRead, lakeRows, lakeSegmentsBehind: segmentsBehind });
    this.#onProgress?.(this.checked);
    this.add(found.problems);
  }

  /** Exports and loads go on meanwhile: what was replaced since it was listed is no problem. */
  async #addIfCurrent(segment: SegmentRecord, reason: Omit<Problem, 'subject'>): Promise<void> {
    const [now] = await this.#deps.repository.segmentsById([segment.segmentId]);
    this.#suspects.add(segment.segmentId);
    if (now === undefined || (segment.isLoaded && !now.isLoaded)) return;
    this.add([{ ...reason, subject: segment.objectKey }]);
  }

  add(problems: readonly Problem[]): void {
    this.problemCount += problems.length;
    this.problems.push(...problems.slice(0, PROBLEMS_KEPT_MAX - this.problems.length));
  }
}

function refuseOther(manifest: Manifest, segment: SegmentRecord): void {
  const key = manifestKey(segment.objectKey);
  const told = { ...manifest, from: formatInstant(manifest.from), to: formatInstant(manifest.to) };
  const differing = SAME_IN_MANIFEST.filter((name) => String(segment[name]) !== String(told[name]));
  if (differing.length === 0) return;
  throw new PermanentError(`The manifest ${key} and mirror.segments differ in ${differing.join(', ')}`, {
    code: 'MANIFEST_DIFFERS',
    meta: { key, differing },
  });
}

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
