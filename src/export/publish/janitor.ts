/**
 * Clears what dead processes left: old spool files, unfinished uploads, and objects that nothing names;
 * and the objects of segments that were superseded long enough ago.
 * An object newer than the database knows is never rubbish: after a restore it is the only copy.
 */
import { errorCode } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { nowMicros } from '../../core/time.ts';
import { readManifest } from '../../ledger/objects/manifest.ts';
import { isManifestKey, isSegmentKey, manifestKey, objectKeyOf } from '../../ledger/objects/object-keys.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { ExportArchiveStore } from '../store/export-archive.ts';

/** Longer than any export takes, and than people need to notice a mistake. */
const GRACE_MS = 7 * 24 * 3_600_000;
const BATCH_KEYS = 500;

export interface TidyDeps {
  readonly objects: ObjectStore;
  readonly archive: ExportArchiveStore;
  readonly log: Log;
  readonly graceMs?: number;
}

export interface TidyReport {
  /** Spool files and unfinished uploads. */
  readonly sweptFiles: number;
  readonly removedObjects: number;
  /** Unreferenced, but newer than the database or of another one: kept. */
  readonly keptObjects: number;
}

export async function tidyStore(deps: TidyDeps, signal: AbortSignal): Promise<TidyReport> {
  const graceMs = deps.graceMs ?? GRACE_MS;
  const before = nowMicros() - BigInt(graceMs) * 1000n;
  // Those of which this pass has found nothing left over: they were removed as long before it.
  await deps.archive.forget(graceMs);
  let [removedObjects, keptObjects] = [await removeRetired(deps, graceMs, signal), 0];
  for await (const batch of oldObjects(deps.objects, before, signal)) {
    const referenced = await deps.archive.referenced(batch);
    for (const key of batch) {
      if (referenced.has(key)) continue;
      if (!(await isOurRubbish(key, deps, signal))) keptObjects += 1;
      else if (await removeObject(key, deps, signal)) removedObjects += 1;
    }
  }
  const sweptFiles = await deps.objects.sweep(graceMs, signal);
  const report = { sweptFiles, removedObjects, keptObjects };
  if (keptObjects > 0) deps.log.warn(report, 'Objects are newer than the database, or of another one; kept');
  else deps.log.debug(report, 'Store tidied');
  return report;
}

/** Marked before they are removed: what a crash leaves of them is found as unreferenced. */
async function removeRetired(deps: TidyDeps, graceMs: number, signal: AbortSignal): Promise<number> {
  let removed = 0;
  for (;;) {
    signal.throwIfAborted();
    const keys = await deps.archive.retire(graceMs);
    if (keys.length === 0) return removed;
    for (const key of keys) if (await removeObject(key, deps, signal)) removed += 1;
  }
}

/**
 * The manifest first: while it lies there, its object is whole.
 * @returns false where a publication has come to name it again
 */
async function removeObject(
  key: string,
  { objects, archive }: TidyDeps,
  signal: AbortSignal,
): Promise<boolean> {
  return archive.removing(key, async () => {
    await objects.remove(manifestKey(key), signal);
    await objects.remove(key, signal);
  });
}

/** Keys of objects below `ledger/` that are older than that, in batches; a manifest stands for its object. */
async function* oldObjects(
  objects: ObjectStore,
  before: bigint,
  signal: AbortSignal,
): AsyncGenerator<string[]> {
  let batch = new Set<string>();
  for await (const { key, modifiedAt } of objects.list('ledger/', signal)) {
    if (modifiedAt >= before) continue;
    const objectKey = isManifestKey(key) ? objectKeyOf(key) : key;
    // Others may keep theirs there as well.
    if (!isSegmentKey(objectKey)) continue;
    batch.add(objectKey);
    if (batch.size < BATCH_KEYS) continue;
    yield [...batch];
    batch = new Set();
  }
  if (batch.size > 0) yield [...batch];
}

async function isOurRubbish(key: string, deps: TidyDeps, signal: AbortSignal): Promise<boolean> {
  try {
    const manifest = await readManifest(deps.objects, manifestKey(key), signal);
    const { warehouseId, publicationSeq } = await deps.archive.identity();
    if (manifest.warehouseId !== warehouseId || manifest.seq > publicationSeq) return false;
    // A database that went back to a backup has forgotten the run: its object may be the only copy.
    return await deps.archive.knowsRun(manifest.runId);
  } catch (error) {
    // Never finished: without a manifest nobody may rely on it.
    if (errorCode(error) === 'OBJECT_MISSING') return true;
    if (errorCode(error) === 'MANIFEST_INVALID') return false;
    throw error;
  }
}
