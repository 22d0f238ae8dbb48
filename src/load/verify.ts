/**
 * Proves what is recorded: every published object and every loaded row agrees with its sums. What was
 * never fetched is told, not failed.
 */
import { errorCode, errorLine, PermanentError } from '../core/errors.ts';
import { formatInstant } from '../core/time.ts';
import { type Manifest, readManifest } from '../ledger/objects/manifest.ts';
import { isManifestKey, manifestKey, objectKeyOf } from '../ledger/objects/object-keys.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { LakeCheck, NeverFetched, Problem, SegmentRecord } from './ports.ts';
import type { VerifyStore } from './store/verify-store.ts';
import { readSegment } from './segment-reader.ts';
import { addUp, StoredSums } from './stored-sums.ts';

const PAGE_SEGMENTS = 100;
const PROBLEMS_KEPT_MAX = 100;
/** Each nightly run proves one in so many of what was proven before: everything within four weeks. */
const NIGHTLY_PARTS = 28;
const LEDGER_PREFIX = 'ledger/';
const LISTED_TOGETHER = 1_000;
/** Manifests of unknown objects that are read, to tell whose they are. */
const UNKNOWN_READ_MAX = 100;
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
  readonly onProgress?: (checked: VerifyCounts) => void;
}

export interface VerifyCounts {
  readonly segments: number;
  readonly objectBytes: bigint;
  readonly loadedSegments: number;
  readonly warehouseRows: bigint;
  readonly lakeFiles: number;
  readonly lakeFilesRead: number;
  readonly lakeRows: bigint;
  /** Segments that the next build of the lake brings or takes away. */
  readonly lakeSegmentsBehind: number;
}

export interface VerifyReport {
  readonly verdict: 'complete' | 'failed';
  readonly deep: boolean;
  readonly scope: 'nightly' | 'whole';
  /** Each current segment was proven since then; null where one never was. RFC 3339. */
  readonly provenSince: string | null;
  /** Objects of this lineage that no segment names: left by a crash, or published after a backup that was restored. */
  readonly objectsNotRecorded: number;
  readonly checked: VerifyCounts;
  readonly problemCount: number;
  readonly problems: readonly Problem[];
  readonly neverFetched: NeverFetched;
}

/** @throws RetryableError where the warehouse or the store could not be asked: then nothing is proven */
export async function verify(
  deps: VerifyDeps,
  signal: AbortSignal,
  options: VerifyOptions = {},
): Promise<VerifyReport> {
  return new Verification(deps, signal, options).run();
}

class Verification {
  readonly #deps: VerifyDeps;
  readonly #signal: AbortSignal;
  readonly #options: VerifyOptions;
  readonly #problems: Problem[] = [];
  /** Of the page in hand: something of them does not agree. */
  readonly #suspects = new Set<bigint>();
  #notRecorded = 0;
  #problemCount = 0;
  #checked: VerifyCounts = {
    segments: 0,
    objectBytes: 0n,
    loadedSegments: 0,
    warehouseRows: 0n,
    lakeFiles: 0,
    lakeFilesRead: 0,
    lakeRows: 0n,
    lakeSegmentsBehind: 0,
  };

  constructor(deps: VerifyDeps, signal: AbortSignal, options: VerifyOptions) {
    this.#deps = deps;
    this.#signal = signal;
    this.#options = options;
  }

  async run(): Promise<VerifyReport> {
    await this.#checkSegments();
    if (this.#isFull) await this.#checkStore();
    for (const { code, message, count } of await this.#deps.repository.inconsistencies(
      this.#signal,
      this.#isFull,
    )) {
      if (count > 0n) this.#add({ code, subject: 'mirror', message: `${message}: ${count}` });
    }
    await this.#checkLake();
    return {
      verdict: this.#problemCount === 0 ? 'complete' : 'failed',
      deep: this.#options.deep ?? false,
      scope: this.#isFull ? 'whole' : 'nightly',
      provenSince: await this.#deps.repository.oldestProof(),
      objectsNotRecorded: this.#notRecorded,
      checked: this.#checked,
      problemCount: this.#problemCount,
      problems: this.#problems,
      neverFetched: await this.#deps.repository.neverFetched(),
    };
  }

  get #isFull(): boolean {
    return this.#options.scope !== 'nightly';
  }

  async #checkSegments(): Promise<void> {
    for await (const page of this.#pages()) {
      this.#suspects.clear();
      for (const segment of page) {
        this.#signal.throwIfAborted();
        await this.#checkObject(segment);
        const { segments, objectBytes } = this.#checked;
        this.#count({ segments: segments + 1, objectBytes: objectBytes + segment.objectBytes });
      }
      await this.#checkRows(page.filter((segment) => segment.isLoaded));
      const proven = page.filter(({ segmentId }) => !this.#suspects.has(segmentId));
      await this.#deps.repository.noteProven(proven.map(({ segmentId }) => segmentId));
    }
  }

  async *#pages(): AsyncGenerator<readonly SegmentRecord[]> {
    const { repository } = this.#deps;
    if (!this.#isFull) {
      const ids = await repository.segmentsToProve(NIGHTLY_PARTS);
      for (let start = 0; start < ids.length; start += PAGE_SEGMENTS)
        yield await repository.segmentsById(ids.slice(start, start + PAGE_SEGMENTS));
      return;
    }
    for (let after = 0n; ;) {
      const page = await repository.currentSegments(after, PAGE_SEGMENTS);
      yield page;
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE_SEGMENTS) return;
      after = last.segmentId;
    }
  }

  /** Objects that this warehouse does not know: of another mirror, or of this one and not recorded. */
  async #checkStore(): Promise<void> {
    const warehouseId = await this.#deps.repository.warehouseId();
    let isAnyKnown = false;
    let foreign = 0;
    for await (const keys of this.#manifestKeys()) {
      const known = await this.#deps.repository.knownObjects(keys.map(objectKeyOf));
      isAnyKnown ||= known.size > 0;
      for (const key of keys.filter((one) => !known.has(objectKeyOf(one)))) {
        this.#notRecorded += 1;
        if (this.#notRecorded > UNKNOWN_READ_MAX) continue;
        const lineage = await this.#lineageOf(key);
        if (lineage === undefined || lineage === warehouseId) continue;
        foreign += 1;
        this.#notRecorded -= 1;
        this.#add({
          code: 'OBJECT_FOREIGN',
          subject: key,
          message: `it was published by another mirror, ${lineage}`,
        });
      }
    }
    if (isAnyKnown || foreign > 0 || this.#notRecorded === 0) return;
    const message = `the store holds ${this.#notRecorded} objects and this database knows none of them; \`ledger-mirror load --all\` rebuilds it from them`;
    this.#add({ code: 'OBJECTS_NOT_RECORDED', subject: LEDGER_PREFIX, message });
  }

  async *#manifestKeys(): AsyncGenerator<readonly string[]> {
    let keys: string[] = [];
    for await (const { key } of this.#deps.objects.list(LEDGER_PREFIX, this.#signal)) {
      if (!isManifestKey(key)) continue;
      keys.push(key);
      if (keys.length < LISTED_TOGETHER) continue;
      yield keys;
      keys = [];
    }
    if (keys.length > 0) yield keys;
  }

  async #lineageOf(key: string): Promise<string | undefined> {
    try {
      return (await readManifest(this.#deps.objects, key, this.#signal)).warehouseId;
    } catch (error) {
      // Taken away since it was listed, or no manifest: it says nothing of whose it is.
      if (!(error instanceof PermanentError)) throw error;
      return undefined;
    }
  }

  async #checkObject(segment: SegmentRecord): Promise<void> {
    try {
      // A bit that flipped on the way is not in the object.
      await this.#readWhole(segment).catch((error: unknown) => {
        if (!(error instanceof PermanentError) || error.code === 'OBJECT_MISSING') throw error;
        return this.#readWhole(segment);
      });
      await this.#checkManifest(segment);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      const reason = { code: errorCode(error), message: errorLine(error) };
      await this.#addIfCurrent(segment, reason.code, reason.message);
      await this.#deps.repository.distrust(segment.segmentId, reason);
    }
  }

  async #readWhole(segment: SegmentRecord): Promise<void> {
    const reading = readSegment(this.#deps.objects, segment, NO_ROWS, this.#signal);
    for (let step = await reading.next(); step.done !== true;) step = await reading.next();
  }

  async #checkManifest(segment: SegmentRecord): Promise<void> {
    const key = manifestKey(segment.objectKey);
    const manifest = await readManifest(this.#deps.objects, key, this.#signal);
    const differing = differences(segment, manifest);
    if (differing.length === 0) return;
    throw new PermanentError(`The manifest ${key} and mirror.segments differ in ${differing.join(', ')}`, {
      code: 'MANIFEST_DIFFERS',
      meta: { key, differing },
    });
  }

  async #checkRows(segments: readonly SegmentRecord[]): Promise<void> {
    if (segments.length === 0) return;
    const ids = segments.map((segment) => segment.segmentId);
    const counts = await this.#deps.repository.countRows(ids);
    const recorded = await this.#deps.repository.monthSums(ids);
    const stored = this.#options.deep === true ? await this.#storedSums(ids) : undefined;
    for (const segment of segments) {
      const rows = counts.get(segment.segmentId) ?? 0n;
      const { loadedSegments, warehouseRows } = this.#checked;
      this.#count({ loadedSegments: loadedSegments + 1, warehouseRows: warehouseRows + rows });
      if (rows !== segment.rows) {
        const message = `mirror.ledger_entries has ${rows} rows of it, its manifest ${segment.rows}`;
        await this.#addIfCurrent(segment, 'ROWS_DIFFER', message);
        continue;
      }
      const sums = addUp(recorded.get(segment.segmentId) ?? []);
      if (sums.rows !== segment.rows || sums.valuesDigest !== segment.valuesDigest) {
        await this.#addIfCurrent(segment, 'MONTHS_DIFFER', 'its sums by month do not add up to its own');
      }
      if (stored === undefined) continue;
      const found = addUp(stored.of(segment.segmentId));
      if (found.valuesDigest !== segment.valuesDigest) {
        const message = `the rows in mirror.ledger_entries sum up to ${found.valuesDigest}, loaded were ${segment.valuesDigest}`;
        await this.#addIfCurrent(segment, 'VALUES_DIFFER', message);
      }
    }
  }

  async #storedSums(ids: readonly bigint[]): Promise<StoredSums> {
    const sums = new StoredSums();
    const decoder = new TextDecoder();
    for await (const chunk of this.#deps.repository.loadedLines(ids, this.#signal)) {
      sums.push(decoder.decode(chunk, { stream: true }));
    }
    return sums;
  }

  async #checkLake(): Promise<void> {
    if (this.#deps.lake === undefined) return;
    const deep = this.#options.deep ?? false;
    const parts = this.#isFull ? {} : { parts: NIGHTLY_PARTS };
    const found = await this.#deps.lake({ deep, ...parts }, this.#signal);
    const { files, filesRead, rows, problems, segmentsBehind } = found;
    this.#count({
      lakeFiles: files,
      lakeFilesRead: filesRead,
      lakeRows: rows,
      lakeSegmentsBehind: segmentsBehind,
    });
    for (const problem of problems) this.#add(problem);
  }

  /** Exports and loads go on meanwhile: what was replaced since it was listed is no problem. */
  async #addIfCurrent(segment: SegmentRecord, code: string, message: string): Promise<void> {
    const [now] = await this.#deps.repository.segmentsById([segment.segmentId]);
    this.#suspects.add(segment.segmentId);
    if (now === undefined || (segment.isLoaded && !now.isLoaded)) return;
    this.#add({ code, subject: segment.objectKey, message });
  }

  #add(problem: Problem): void {
    this.#problemCount += 1;
    if (this.#problems.length < PROBLEMS_KEPT_MAX) this.#problems.push(problem);
  }

  #count(more: Partial<VerifyCounts>): void {
    this.#checked = { ...this.#checked, ...more };
    this.#options.onProgress?.(this.#checked);
  }
}

/** Names of what the manifest says otherwise than the table. */
function differences(segment: SegmentRecord, manifest: Manifest): readonly string[] {
  const pairs: readonly (readonly [name: string, recorded: unknown, published: unknown])[] = [
    ['objectKey', segment.objectKey, manifest.objectKey],
    ['partyId', segment.partyId, manifest.partyId],
    ['assetId', segment.assetId ?? null, manifest.assetId],
    ['from', segment.from, formatInstant(manifest.from)],
    ['to', segment.to, formatInstant(manifest.to)],
    ['rows', segment.rows, manifest.rows],
    ['bytes', segment.bytes, manifest.bytes],
    ['sha256', segment.sha256, manifest.sha256],
    ['objectBytes', segment.objectBytes, manifest.objectBytes],
    ['objectSha256', segment.objectSha256, manifest.objectSha256],
    ['digest', segment.digest, manifest.digest],
    ['columns', segment.columns.join(), manifest.columns.join()],
  ];
  return pairs.flatMap(([name, recorded, published]) => (recorded === published ? [] : [name]));
}
