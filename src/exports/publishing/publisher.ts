/**
 * Publishes exactly once: intent, object, manifest, COMMIT, in this order. Only the
 * COMMIT makes a publication visible, because readers follow the tables. If a crash
 * leaves a publication half done, the next owner of the lease finishes or drops it.
 */
import { access, unlink } from 'node:fs/promises';
import { pipeline } from 'node:stream';
import { ByteCounter } from '../../files/byte-counter.ts';
import {
  errorCode,
  FencedError,
  PermanentError,
  RetryableError,
} from '../../errors/errors.ts';
import { isStoreFault } from '../../errors/faults.ts';
import { nowMicros } from '../../time/time.ts';
import type { Layout } from '../../ledger/header.ts';
import {
  encodeManifest,
  type Manifest,
  readManifest,
  type ReleaseShown,
} from '../../ledger/manifest.ts';
import {
  manifestKey,
  segmentKey,
  isArchiveDamage,
  plainStream,
  type Compression,
} from '../../ledger/object-keys.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import type { KeptLease } from '../../concurrency/lease.ts';
import type { Spooled } from '../download/range-spool.ts';
import type { NewCoverage } from '../../catalog/coverage-rows.ts';
import type { PublishContext, PublishDeps } from '../export-context.ts';
import type {
  ExportRepository,
  PublicationNumber,
} from '../store/export-repository.ts';
import type { ExportLease } from '../../catalog/leases.ts';
import type { Publication } from '../../catalog/publications.ts';

export function publishContext(
  lease: ExportLease,
  kept: KeptLease,
  deps: PublishDeps,
  signal: AbortSignal,
): PublishContext {
  const { repository, objects, compression } = deps;
  let files = 0;
  return {
    lease,
    repository,
    objects,
    compression,
    checkLease: kept.check,
    signal: AbortSignal.any([signal, kept.signal]),
    failpoint: async (step) => {
      await deps.failpoint?.(step);
      kept.check();
    },
    spoolFile: async () => {
      files += 1;
      const name = `${spoolPrefix(lease)}${lease.token}.${files}.csv`;
      return { name, path: await objects.spoolPath(name) };
    },
  };
}

/**
 * Publishes a plan, and removes its spool files at the end. The intent is recorded
 * before the store is used, so that a fully spooled response survives an outage of the
 * store.
 * @returns the publication as committed; an object that already existed keeps its bytes
 */
export async function publish(
  planned: Publication,
  context: PublishContext,
): Promise<Publication> {
  const { lease, repository, objects, failpoint } = context;
  // A publication without objects needs no intent: a crash cannot leave it half done.
  if (planned.segments.length > 0) await repository.intend(lease, planned);
  await failpoint('intended');
  const publication = await finish(planned, context);
  for (const { spoolName } of publication.segments) {
    const path = await objects.spoolPath(spoolName);
    // If the file cannot be removed, the next lease of the export removes it.
    await unlink(path).catch(() => undefined);
  }
  return publication;
}

/**
 * Writes each object and then its manifest, and commits. The order matters, because a
 * manifest means that its object is complete.
 */
async function finish(
  planned: Publication,
  context: PublishContext,
): Promise<Publication> {
  const { lease, repository, objects, failpoint, signal } = context;
  const segments: PlannedSegment[] = [];
  for (const { spoolName, manifest: plannedManifest } of planned.segments) {
    const existing = await existingObject(plannedManifest, context);
    const manifest = existing ?? plannedManifest;
    if (existing === undefined) {
      const path = await objects.spoolPath(spoolName);
      const facts = {
        bytes: manifest.objectBytes,
        sha256: manifest.objectSha256,
      };
      await objects.publishFile(manifest.objectKey, path, facts, signal);
    }
    await failpoint('object');
    await publishManifest(manifest, context);
    await failpoint('manifest');
    segments.push({ spoolName, manifest });
  }
  signal.throwIfAborted();
  const publication = { ...planned, segments };
  await repository.commit(lease, publication);
  await failpoint('committed');
  return publication;
}

/** A segment of a publication: its spool file and its manifest. */
type PlannedSegment = Publication['segments'][number];

/**
 * Looks for an object with the same content under the manifest's key. The key is
 * derived from the plain CSV, which a different version of the compression library, or
 * different windows, may compress to different bytes. An object with the same content
 * is used as it is; one with different content is removed, with its manifest.
 * @returns the manifest with the stored object's sums; undefined if there is no usable
 *   object
 * @throws the store's error if the object cannot be read and its manifest does not
 *   vouch for it
 */
async function existingObject(
  manifest: Manifest,
  context: PublishContext,
): Promise<Manifest | undefined> {
  const { objects, signal } = context;
  const { objectKey } = manifest;
  const head = await objects.head(objectKey, signal);
  if (head === undefined) return undefined;
  if (
    head.sha256 === manifest.objectSha256 &&
    head.bytes === manifest.objectBytes
  )
    return manifest;
  const sums = await readSums(manifest, head, context);
  if (sums.plainSha256 === manifest.sha256)
    return {
      ...manifest,
      objectBytes: sums.bytes,
      objectSha256: sums.sha256,
      // The planned frames describe the bytes of our own spool file.
      frames: sums.frames,
    };
  // The object's content does not match its key, so nothing can use it.
  await objects.remove(manifestKey(objectKey), signal);
  await objects.remove(objectKey, signal);
  return undefined;
}

/** The sums of a stored object. */
interface StoredSums {
  /** Size and SHA-256 of the object as stored. */
  readonly bytes: bigint;
  readonly sha256: string;
  /** SHA-256 of the plain CSV. */
  readonly plainSha256: string;
  /** The object's frames, if its own manifest lists them. */
  readonly frames?: Manifest['frames'];
}

/** What the store reports about an object without reading it. */
interface StoredHead {
  readonly bytes: bigint;
  readonly sha256: string | undefined;
}

/**
 * Sums an object by reading it. An object that the store has moved to an archive tier,
 * or does not let us read, is not damaged. Its sums are taken from its manifest,
 * provided that the manifest describes the stored object.
 */
async function readSums(
  manifest: Manifest,
  head: StoredHead,
  context: PublishContext,
): Promise<StoredSums> {
  try {
    return await sumObject(manifest, context);
  } catch (error) {
    const isRefused = error instanceof PermanentError && isStoreFault(error);
    if (!isRefused) throw error;
    const vouched = await vouchedSums(manifest, head, context);
    if (vouched === undefined) throw error;
    return vouched;
  }
}

async function sumObject(
  { objectKey, compression }: Manifest,
  { objects, signal }: PublishContext,
): Promise<StoredSums> {
  const stored = new ByteCounter();
  const plain = new ByteCounter();
  const bytes = pipeline(
    await objects.read(objectKey, signal),
    stored.through(),
    () => undefined,
  );
  try {
    for await (const chunk of plainStream(bytes, compression))
      plain.add(chunk as Buffer);
  } catch (error) {
    // A damaged archive has different content, as its sums show. Any other error comes
    // from the store.
    if (!isArchiveDamage(error)) throw error;
  }
  return { ...stored.facts(), plainSha256: plain.sha256() };
}

/**
 * Reads the sums in the stored manifest.
 * @returns undefined unless they describe the stored object
 */
async function vouchedSums(
  { objectKey }: Manifest,
  head: StoredHead,
  { objects, signal }: PublishContext,
): Promise<StoredSums | undefined> {
  try {
    const found = await readManifest(objects, manifestKey(objectKey), signal);
    const isOfObject =
      found.objectKey === objectKey &&
      found.objectBytes === head.bytes &&
      (head.sha256 === undefined || head.sha256 === found.objectSha256);
    if (!isOfObject) return undefined;
    return {
      bytes: found.objectBytes,
      sha256: found.objectSha256,
      plainSha256: found.sha256,
      frames: found.frames,
    };
  } catch (error) {
    if (error instanceof PermanentError) return undefined;
    throw error;
  }
}

/**
 * Writes a manifest. When a superseded object is published again, its newest manifest
 * is kept, because a rebuild uses it to decide which segments are current.
 */
async function publishManifest(
  manifest: Manifest,
  { lease, objects, signal }: PublishContext,
): Promise<void> {
  const key = manifestKey(manifest.objectKey);
  const content = encodeManifest(manifest);
  const write = (): Promise<void> =>
    objects.publishBytes(key, content, signal, spoolPrefix(lease));
  try {
    await write();
  } catch (error) {
    if (errorCode(error) !== 'OBJECT_CONFLICT') throw error;
    if (await isNewestManifest(manifest, key, objects, signal)) return;
    // The stored manifest describes an object that was lost, or an earlier publication.
    await objects.remove(key, signal);
    await write();
  }
}

/** Whether the stored manifest describes the same object, and is not older than ours. */
async function isNewestManifest(
  ours: Manifest,
  key: string,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const stored = await readManifest(objects, key, signal);
    const isSame =
      stored.objectSha256 === ours.objectSha256 && stored.to === ours.to;
    return isSame && stored.publishedAt >= ours.publishedAt;
  } catch (error) {
    if (errorCode(error) === 'MANIFEST_INVALID') return false;
    throw error;
  }
}

/**
 * Finishes the publications that crashed workers of this scope intended, provided that
 * every object is in the store or still spooled, and drops the others. Clears the
 * export's spool.
 * @returns the publications that were finished without the source
 * @throws the error of the store or the database; the spool and the intent are then
 *   kept
 */
export async function recover(
  context: PublishContext,
): Promise<readonly Publication[]> {
  const { lease, repository } = context;
  const adopted: Publication[] = [];
  for (const [publicationId, publication] of await repository.openPublications(
    lease,
  )) {
    const done = publication && (await finishOrRefuse(publication, context));
    if (done === undefined) await repository.drop(lease, publicationId);
    else adopted.push(done);
  }
  await clearSpool(context);
  return adopted;
}

/**
 * Finishes an intended publication.
 * @returns undefined if its spool files are gone or it can never be committed; the
 *   caller then drops it, and its range is planned again
 */
async function finishOrRefuse(
  publication: Publication,
  context: PublishContext,
): Promise<Publication | undefined> {
  try {
    if (!(await isAtHand(publication, context))) return undefined;
    return await finish(publication, context);
  } catch (error) {
    context.signal.throwIfAborted();
    if (error instanceof FencedError || mayPass(error)) throw error;
    return undefined;
  }
}

/**
 * Whether a failure may be temporary, so that the publication can still be finished. A
 * store that refuses because of expired credentials or a missing permission accepts the
 * spooled object once an operator has fixed that.
 */
function mayPass(error: unknown): boolean {
  const code = errorCode(error);
  if (code.startsWith('OBJECT_STORE_')) return true;
  return error instanceof RetryableError && code !== 'COVERAGE_CHANGED';
}

/** Whether every object of a publication is still spooled, or in the store. */
async function isAtHand(
  { segments }: Publication,
  { objects, signal }: PublishContext,
): Promise<boolean> {
  for (const { spoolName, manifest } of segments) {
    const path = await objects.spoolPath(spoolName);
    const isSpooled = await access(path).then(
      () => true,
      () => false,
    );
    if (isSpooled) continue;
    const head = await objects.head(manifest.objectKey, signal);
    if (head === undefined) return false;
  }
  return true;
}

/**
 * Returns the prefix of an export's spool files. The next owner of the lease uses it to
 * find the files of a crashed one.
 */
function spoolPrefix({ exportId }: ExportLease): string {
  return `export-${exportId}.`;
}

/** Removes all spool files of the export. */
export async function clearSpool({
  objects,
  lease,
}: PublishContext): Promise<void> {
  await objects.clearSpool(spoolPrefix(lease));
}

/** The number of a response's rows outside the party, the asset or the range. */
export type LeftOut = Manifest['leftOut'];

/** The left-out counts for rows that are copied from published segments: all zero. */
export const NONE_LEFT_OUT: LeftOut = { party: 0n, asset: 0n, range: 0n };

/** The rows of a new range, in the spool. */
export interface WrittenRows {
  readonly spooled: Spooled;
  /** The header that the rows were received with. */
  readonly layout: Layout;
  readonly leftOut: LeftOut;
}

/** A range that a publication adds to the coverage. */
export interface NewRange extends Omit<NewCoverage, 'objectKey'> {
  /** The range's rows; undefined if it has no entries. */
  readonly written?: WrittenRows | undefined;
}

/** The facts shared by all manifests of a publication. */
export interface ManifestFacts {
  readonly partyId: string;
  readonly compression: Compression;
  /** The URL of the source, without credentials. */
  readonly source: string;
  readonly runId: string;
  /** The epoch of the source's chain; undefined if no checkpoint is known. */
  readonly epoch: number | undefined;
  /** The findings about the source's release, from its responses. */
  readonly release: ReleaseShown | undefined;
}

/** The objects of a publication, and the coverage that is published with them. */
type NamedRanges = Pick<Publication, 'segments' | 'coverage'>;

/**
 * Names the objects of new ranges and builds their manifests. The publication gets a
 * number only if it has an object, because only manifests record the number.
 */
export async function nameObjects(
  ranges: readonly NewRange[],
  facts: ManifestFacts,
  repository: Pick<ExportRepository, 'nextSeq'>,
): Promise<NamedRanges> {
  if (ranges.every(({ written }) => written === undefined))
    return { segments: [], coverage: [...ranges] };
  const number = await repository.nextSeq();
  const segments: PlannedSegment[] = [];
  const coverage = ranges.map(({ written, ...range }) => {
    if (written === undefined) return range;
    const manifest = manifestOf(range, written, facts, number);
    segments.push({ spoolName: written.spooled.name, manifest });
    return { ...range, objectKey: manifest.objectKey };
  });
  return { segments, coverage };
}

function manifestOf(
  range: Omit<NewRange, 'written'>,
  { spooled, layout, leftOut }: WrittenRows,
  facts: ManifestFacts,
  number: PublicationNumber,
): Manifest {
  const { assetId, from, to, open, tail, checkedAt } = range;
  const { name: _name, path: _path, rows, ...sums } = spooled;
  const { sha256 } = sums;
  return {
    version: 1,
    ...facts,
    ...number,
    ...sums,
    assetId,
    from,
    to,
    open,
    objectKey: segmentKey({ ...facts, assetId, from, to, sha256 }),
    sides: layout.sides,
    columns: [...layout.columns],
    rows: BigInt(rows),
    leftOut,
    publishedAt: nowMicros(),
    checkedAt,
    tail: tail ?? undefined,
  };
}
