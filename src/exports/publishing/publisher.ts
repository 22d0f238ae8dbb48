/**
 * Publishing exactly once: intent, object, manifest, COMMIT, in this order. Only the COMMIT counts:
 * readers go by the tables. What a crash leaves in between is finished or given up by the next lease.
 */
import { access, unlink } from 'node:fs/promises';
import { pipeline } from 'node:stream';
import { ByteCounter } from '../../files/byte-counter.ts';
import { errorCode, FencedError, RetryableError } from '../../errors/errors.ts';
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
import type { Spooled, SpoolOptions } from '../download/range-spool.ts';
import type { NewCoverage } from '../../catalog/coverage-rows.ts';
import type { ExportRepository } from '../store/export-repository.ts';
import type { ExportLease } from '../../catalog/leases.ts';
import type { Publication } from '../../catalog/publications.ts';

export type Step =
  | 'claimed'
  | 'asked'
  | 'spooled'
  | 'intended'
  | 'object'
  | 'manifest'
  | 'committed';

export interface PublishDeps extends Pick<SpoolOptions, 'compression'> {
  readonly repository: ExportRepository;
  readonly objects: ObjectStore;
  /** Called at each step, where tests kill the process. */
  readonly failpoint?: ((step: Step) => Promise<void> | void) | undefined;
}

/** What the holder of a lease publishes with. */
export interface PublishContext
  extends SpoolOptions, Pick<PublishDeps, 'repository' | 'objects'> {
  readonly lease: ExportLease;
  /** @throws FencedError | RetryableError `LEASE_LOST` */
  readonly checkLease: () => void;
  readonly failpoint: (step: Step) => Promise<void>;
  /** Aborts with the work, and where the lease is lost. */
  readonly signal: AbortSignal;
}

export function publishContext(
  lease: ExportLease,
  held: KeptLease,
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
    checkLease: held.check,
    signal: AbortSignal.any([signal, held.signal]),
    failpoint: async (step: Step): Promise<void> => {
      await deps.failpoint?.(step);
      held.check();
    },
    spoolFile: async () => {
      files += 1;
      const name = `${spoolPrefix(lease)}${lease.token}.${files}.csv`;
      return { name, path: await objects.spoolPath(name) };
    },
  };
}

/**
 * Removes the publication's spool files at the end.
 * Intended before the store is asked anything: what is spooled and whole outlasts a store that is away.
 * @returns what was published: objects that lay there already keep the bytes they have
 */
export async function publish(
  planned: Publication,
  context: PublishContext,
): Promise<Publication> {
  const { lease, repository, objects, failpoint } = context;
  // Without objects there is nothing that a crash could leave half done.
  if (planned.segments.length > 0) await repository.intend(lease, planned);
  await failpoint('intended');
  const publication = await finish(planned, context);
  // A leftover is cleared by the export's next lease.
  for (const { spoolName } of publication.segments)
    await unlink(await objects.spoolPath(spoolName)).catch(() => undefined);
  return publication;
}

/** Objects first, each with its manifest behind it: a manifest means that the object is whole. */
async function finish(
  planned: Publication,
  context: PublishContext,
): Promise<Publication> {
  const { lease, repository, objects, failpoint, signal } = context;
  const segments: Publication['segments'][number][] = [];
  for (const { spoolName, manifest } of planned.segments) {
    const existing = await existingObject(manifest, context);
    if (existing === undefined) {
      const path = await objects.spoolPath(spoolName);
      const facts = { bytes: manifest.objectBytes, sha256: manifest.objectSha256 };
      await objects.publishFile(manifest.objectKey, path, facts, signal);
    }
    await failpoint('object');
    await publishManifest(existing ?? manifest, context);
    await failpoint('manifest');
    segments.push({ spoolName, manifest: existing ?? manifest });
  }
  signal.throwIfAborted();
  const publication = { ...planned, segments };
  await repository.commit(lease, publication);
  await failpoint('committed');
  return publication;
}

/**
 * A key names the plain CSV, but one CSV can be compressed to different bytes (another version of the library, other
 * windows). Where an object with the same content lies there already, it is taken as it is. One that does not hold what
 * its key names is removed, with its manifest.
 * @returns the manifest with the sums of what is stored, or undefined where nothing good lies under its key
 */
async function existingObject(manifest: Manifest, { objects, signal }: PublishContext) {
  const { objectKey, compression } = manifest;
  const head = await objects.head(objectKey, signal);
  if (head === undefined) return undefined;
  if (head.sha256 === manifest.objectSha256 && head.bytes === manifest.objectBytes)
    return manifest;
  const stored = new ByteCounter();
  const plain = new ByteCounter();
  const bytes = pipeline(
    await objects.read(objectKey, signal),
    stored.through(),
    () => undefined,
  );
  try {
    for await (const chunk of plainStream(bytes, compression)) plain.add(chunk as Buffer);
  } catch (error) {
    // A damaged archive is other content, too; what the store said is the store's affair.
    if (!isArchiveDamage(error)) throw error;
  }
  if (plain.sha256() === manifest.sha256) {
    return { ...manifest, objectBytes: stored.bytes, objectSha256: stored.sha256() };
  }
  // Its key names its content: it is damaged, and nobody can use it.
  await objects.remove(manifestKey(objectKey), signal);
  await objects.remove(objectKey, signal);
  return undefined;
}

/** Of an object that was superseded and comes back, the newer one: by it a rebuild tells what holds. */
async function publishManifest(
  manifest: Manifest,
  { lease, objects, signal }: PublishContext,
) {
  const key = manifestKey(manifest.objectKey);
  const write = () =>
    objects.publishBytes(key, encodeManifest(manifest), signal, spoolPrefix(lease));
  try {
    await write();
  } catch (error) {
    if (errorCode(error) !== 'OBJECT_CONFLICT') throw error;
    const found = await readManifest(objects, key, signal);
    const isSame =
      found.objectSha256 === manifest.objectSha256 && found.to === manifest.to;
    if (isSame && found.publishedAt >= manifest.publishedAt) return;
    // It tells of an object that was lost, or of an earlier time.
    await objects.remove(key, signal);
    await write();
  }
}

/**
 * Finishes what dead workers of this scope intended, where every object is there or still in the spool;
 * gives the rest up. Clears the export's spool.
 * @returns the publications that were finished, without the source
 */
export async function recover(context: PublishContext): Promise<readonly Publication[]> {
  const { lease, repository } = context;
  const adopted: Publication[] = [];
  for (const [publicationId, publication] of await repository.openPublications(lease)) {
    const done = publication && (await finishOrRefuse(publication, context));
    if (done === undefined) await repository.drop(lease, publicationId);
    else adopted.push(done);
  }
  await clearSpool(context);
  return adopted;
}

/** @returns undefined where what was intended is not at hand, or can never be true: then it is planned anew */
async function finishOrRefuse(publication: Publication, context: PublishContext) {
  try {
    return (await isAtHand(publication, context))
      ? await finish(publication, context)
      : undefined;
  } catch (error) {
    context.signal.throwIfAborted();
    // Another owner settles it; what cannot be reached now may be reached later.
    const mayPass =
      error instanceof RetryableError && errorCode(error) !== 'COVERAGE_CHANGED';
    if (mayPass || error instanceof FencedError) throw error;
    return undefined;
  }
}

/** Every object of it is still spooled, or lies in the store. */
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
    if (!isSpooled && (await objects.head(manifest.objectKey, signal)) === undefined)
      return false;
  }
  return true;
}

/** Every spool file of a scope begins with this, so that its next owner finds what a dead one left. */
function spoolPrefix({ exportId }: ExportLease): string {
  return `export-${exportId}.`;
}

export function clearSpool({ objects, lease }: PublishContext): Promise<unknown> {
  return objects.clearSpool(spoolPrefix(lease));
}

/** Of rows that were read from the store. */
export const NONE_LEFT_OUT = { party: 0n, asset: 0n, range: 0n } as const;

export interface NewRange extends Omit<NewCoverage, 'objectKey'> {
  /** Rows that were spooled, and where they come from; absent: nothing lies in the range. */
  readonly written?:
    | (Pick<Manifest, 'leftOut'> & Readonly<{ spooled: Spooled; layout: Layout }>)
    | undefined;
}

/** What the manifests of one publication have in common. */
export interface ManifestFacts {
  readonly partyId: string;
  readonly compression: Compression;
  /** URL of the source, without credentials. */
  readonly source: string;
  readonly runId: string;
  /** Epoch of the source's chain; undefined if no checkpoint is known. */
  readonly epoch: number | undefined;
  /** What the source's answers have shown of its release. */
  readonly release: ReleaseShown | undefined;
}

/**
 * Numbers the publication, where there is an object: only manifests name the number.
 * @param facts what its manifests have in common
 */
export async function nameObjects(
  ranges: readonly NewRange[],
  facts: ManifestFacts,
  repository: Pick<ExportRepository, 'nextSeq'>,
): Promise<Pick<Publication, 'segments' | 'coverage'>> {
  if (ranges.every(({ written }) => written === undefined))
    return { segments: [], coverage: [...ranges] };
  const numbered = { version: 1 as const, ...facts, ...(await repository.nextSeq()) };
  const segments: Publication['segments'] = [];
  const coverage = ranges.map(({ written, ...range }) => {
    if (written === undefined) return range;
    const { assetId, from, to, open, tail } = range;
    const place = { assetId, from, to, open };
    const { leftOut, layout, spooled } = written;
    const { name: spoolName, path: _path, rows, ...sums } = spooled;
    const manifest: Manifest = {
      ...numbered,
      ...sums,
      ...place,
      objectKey: segmentKey({ ...facts, ...place, sha256: sums.sha256 }),
      sides: layout.sides,
      columns: [...layout.columns],
      rows: BigInt(rows),
      leftOut,
      publishedAt: nowMicros(),
      tail: tail ?? undefined,
    };
    segments.push({ spoolName, manifest });
    return { ...range, objectKey: manifest.objectKey };
  });
  return { segments, coverage };
}
