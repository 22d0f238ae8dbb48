/**
 * Proves what is recorded: every published object and every loaded row agrees with its sums. What was
 * never fetched is told, not failed.
 */
import { errorCode, errorLine, PermanentError } from '../errors/errors.ts';
import { formatInstant } from '../time/time.ts';
import { type Manifest, readManifest } from '../ledger/manifest.ts';
import { manifestKey } from '../ledger/object-keys.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { LakeCheck, LakeCheckOptions, Problem } from './ports.ts';
import { readSegment } from './segment-reader.ts';
import type { SegmentRecord } from '../catalog/segment-records.ts';
import type { NeverFetched, VerifyStore } from './store/verify-store.ts';

const PAGE_SEGMENTS = 100;
const PROBLEMS_KEPT_MAX = 100;
/** Each nightly run proves one in so many of what was proven before: everything within four weeks. */
const NIGHTLY_PARTS = 28;

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
  readonly onProgress?: (checked: VerifyCounts) => void;
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
export type VerifyCounts = Readonly<ReturnType<typeof nothingChecked>>;

/** @throws RetryableError where the warehouse or the store could not be asked: then nothing is proven */
export async function verify(
  deps: VerifyDeps,
  signal: AbortSignal,
  { scope = 'whole', deep = false, onProgress }: VerifyOptions = {},
): Promise<VerifyReport> {
  const { repository } = deps;
  const isFull = scope === 'whole';
  const parts = isFull ? 1 : NIGHTLY_PARTS;
  const { found, add, checkSegments, checkLake } = openVerification(
    deps,
    signal,
    onProgress,
  );
  await checkSegments(await repository.segmentsToProve(parts), deep);
  const store = isFull ? await repository.checkStore(deps.objects, signal) : undefined;
  add([
    ...(store?.problems ?? []),
    ...(await repository.inconsistencies(signal, isFull)),
  ]);
  await checkLake({ deep, parts });
  return {
    verdict: found.problemCount === 0 ? 'complete' : 'failed',
    deep,
    scope,
    provenSince: await repository.oldestProof(),
    objectsNotRecorded: store?.notRecorded ?? 0,
    ...found,
    neverFetched: await repository.neverFetched(),
  };
}

function nothingChecked() {
  return {
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
}

function openVerification(
  deps: VerifyDeps,
  signal: AbortSignal,
  onProgress: VerifyOptions['onProgress'],
) {
  const { repository, objects, lake } = deps;
  const checked = nothingChecked();
  const problems: Problem[] = [];
  const found = { checked, problemCount: 0, problems };
  /** Of the page in hand: something of them does not agree. */
  const suspects = new Set<bigint>();

  function add(more: readonly Problem[]) {
    found.problemCount += more.length;
    problems.push(...more.slice(0, PROBLEMS_KEPT_MAX - problems.length));
  }

  /** Exports and loads go on meanwhile: what was replaced since it was listed is no problem. */
  async function addIfCurrent(segment: SegmentRecord, reason: Omit<Problem, 'subject'>) {
    const [now] = await repository.segmentsById([segment.segmentId]);
    suspects.add(segment.segmentId);
    if (now === undefined || (segment.isLoaded && !now.isLoaded)) return;
    add([{ ...reason, subject: segment.objectKey }]);
  }

  async function checkObject(segment: SegmentRecord) {
    const read = async () => {
      const reading = readSegment(objects, segment, () => () => undefined, signal);
      while ((await reading.next()).done !== true);
    };
    try {
      // A bit that flipped on the way is not in the object.
      await read().catch((error: unknown) => {
        if (!(error instanceof PermanentError) || error.code === 'OBJECT_MISSING')
          throw error;
        return read();
      });
      const manifest = await readManifest(
        objects,
        manifestKey(segment.objectKey),
        signal,
      );
      refuseOther(manifest, segment);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      const reason = { code: errorCode(error), message: errorLine(error) };
      await addIfCurrent(segment, reason);
      await repository.distrust(segment.segmentId, reason);
    }
  }

  async function checkSegments(ids: readonly bigint[], isDeep: boolean) {
    for (let start = 0; start < ids.length; start += PAGE_SEGMENTS) {
      const page = await repository.segmentsById(ids.slice(start, start + PAGE_SEGMENTS));
      suspects.clear();
      for (const segment of page) {
        signal.throwIfAborted();
        await checkObject(segment);
        checked.segments += 1;
        checked.objectBytes += segment.objectBytes;
        onProgress?.(checked);
      }
      const loaded = page.filter((segment) => segment.isLoaded);
      for (const { segment, rows, difference } of await repository.checkRows(
        loaded,
        isDeep,
        signal,
      )) {
        checked.loadedSegments += 1;
        checked.warehouseRows += rows;
        if (difference) await addIfCurrent(segment, difference);
      }
      const read = page.map(({ segmentId }) => segmentId);
      await repository.noteProven(read.filter((id) => !suspects.has(id)));
    }
  }

  async function checkLake(options: LakeCheckOptions) {
    const told = await lake?.(options, signal);
    if (told === undefined) return;
    const {
      files: lakeFiles,
      filesRead: lakeFilesRead,
      rows: lakeRows,
      segmentsBehind,
    } = told;
    Object.assign(checked, {
      lakeFiles,
      lakeFilesRead,
      lakeRows,
      lakeSegmentsBehind: segmentsBehind,
    });
    onProgress?.(checked);
    add(told.problems);
  }

  return { found, add, checkSegments, checkLake };
}

function refuseOther(manifest: Manifest, segment: SegmentRecord): void {
  const key = manifestKey(segment.objectKey);
  const told = {
    ...manifest,
    from: formatInstant(manifest.from),
    to: formatInstant(manifest.to),
  };
  const differing = SAME_IN_MANIFEST.filter(
    (name) => String(segment[name]) !== String(told[name]),
  );
  if (differing.length === 0) return;
  throw new PermanentError(
    `The manifest ${key} and mirror.segments differ in ${differing.join(', ')}`,
    {
      code: 'MANIFEST_DIFFERS',
      meta: { key, differing },
    },
  );
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
