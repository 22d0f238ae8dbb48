/**
 * Clears what dead processes left: old spool files, unfinished uploads, and objects that nothing names;
 * and the objects of segments that were superseded long enough ago.
 * An object newer than the database knows is never rubbish: after a restore it is the only copy.
 */
import { errorCode } from '../../errors/errors.ts';
import type { Log } from '../../logging/log.ts';
import { nowMicros } from '../../time/time.ts';
import { readManifest } from '../../ledger/manifest.ts';
import {
  isManifestKey,
  isSegmentKey,
  manifestKey,
  objectKeyOf,
} from '../../ledger/object-keys.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import type { ExportArchiveStore } from '../store/export-archive.ts';

/** Longer than any export takes, and than people need to notice a mistake. */
const GRACE_MS = 7 * 24 * 3_600_000;
const BATCH_KEYS = 500;

export interface GarbageCollectionDeps {
  readonly objects: ObjectStore;
  readonly archive: ExportArchiveStore;
  readonly log: Log;
  readonly graceMs?: number;
}

export async function collectGarbage(
  { objects, archive, log, graceMs = GRACE_MS }: GarbageCollectionDeps,
  signal: AbortSignal,
): Promise<{
  readonly sweptFiles: number;
  readonly removedObjects: number;
  readonly keptObjects: number;
}> {
  const before = nowMicros() - BigInt(graceMs) * 1000n;
  let removedObjects = 0;
  let keptObjects = 0;

  /** The manifest first: while it lies there, its object is whole. Stays where a publication has come to name it again. */
  async function removeObject(key: string) {
    const isRemoved = await archive.removeIfUnreferenced(key, async () => {
      await objects.remove(manifestKey(key), signal);
      await objects.remove(key, signal);
    });
    if (isRemoved) removedObjects += 1;
  }

  async function isOurRubbish(key: string) {
    try {
      // Newer than the database, or of a run that it has forgotten with a backup: it may be the only copy.
      return await archive.isPublicationRecorded(
        await readManifest(objects, manifestKey(key), signal),
      );
    } catch (error) {
      // Never finished: without a manifest nobody may rely on it.
      if (errorCode(error) === 'OBJECT_MISSING') return true;
      if (errorCode(error) === 'MANIFEST_INVALID') return false;
      throw error;
    }
  }

  // Those of which this pass has found nothing left over: they were removed as long before it.
  await archive.forgetRemoved(graceMs);
  // Marked before they are removed: what a crash leaves of them is found as unreferenced.
  for (
    let keys = await archive.markRetired(graceMs);
    keys.length > 0;
    keys = await archive.markRetired(graceMs)
  ) {
    signal.throwIfAborted();
    for (const key of keys) await removeObject(key);
  }
  for await (const batch of oldObjects(objects, before, signal)) {
    const referenced = await archive.referenced(batch);
    for (const key of batch.filter((one) => !referenced.has(one))) {
      if (await isOurRubbish(key)) await removeObject(key);
      // Newer than the database or of another one.
      else keptObjects += 1;
    }
  }
  /** Spool files and unfinished uploads. */
  const sweptFiles = await objects.sweep(graceMs, signal);
  const report = { sweptFiles, removedObjects, keptObjects };
  if (keptObjects > 0)
    log.warn(report, 'Objects are newer than the database, or of another one; kept');
  else log.debug(report, 'Store tidied');
  return report;
}

/** Keys of objects below `ledger/` that are older than that, in batches; a manifest stands for its object. */
async function* oldObjects(objects: ObjectStore, before: bigint, signal: AbortSignal) {
  let batch = new Set<string>();
  for await (const { key, modifiedAt } of objects.list('ledger/', signal)) {
    const objectKey = isManifestKey(key) ? objectKeyOf(key) : key;
    // Others may keep theirs there as well.
    if (modifiedAt < before && isSegmentKey(objectKey)) batch.add(objectKey);
    if (batch.size < BATCH_KEYS) continue;
    yield [...batch];
    batch = new Set();
  }
  if (batch.size > 0) yield [...batch];
}
