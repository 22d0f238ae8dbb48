/**
 * Garbage collection removes what crashed processes leave behind (old spool files,
 * unfinished uploads, unreferenced objects), and the objects of segments that were
 * superseded long enough ago. It keeps objects that are newer than the database: after
 * a restore, such an object may be the only copy of its rows.
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

/**
 * How old a leftover must be before it is removed, by default. That is longer than any
 * export takes, and long enough for an operator to notice a mistake.
 */
const GRACE_MS = 7 * 24 * 3_600_000;
const BATCH_KEYS = 500;
/** Maximum number of other mirrors' manifests to read before giving up the search. */
const FOREIGN_READ_MAX = 1_000;

export interface GarbageCollectionDeps {
  readonly objects: ObjectStore;
  readonly archive: ExportArchiveStore;
  readonly log: Log;
  /** How old a leftover must be before it is removed; seven days by default. */
  readonly graceMs?: number;
  /**
   * Whether this run has already listed the store to compare it with the database. If
   * so, unreferenced objects are left to the next collection.
   */
  readonly isListed?: boolean;
  /**
   * Maximum number of objects that may turn out to belong to a different database
   * before the search ends. Without this limit, a prefix full of another mirror's
   * objects would cost one read per object every night.
   */
  readonly foreignReadMax?: number;
}

/** The results of one collection. */
export interface GarbageCollectionReport {
  /** Spool files and unfinished uploads that were removed. */
  readonly sweptFiles: number;
  readonly removedObjects: number;
  /**
   * Unreferenced objects that were kept because they are newer than the database or
   * belong to another mirror.
   */
  readonly keptObjects: number;
}

export async function collectGarbage(
  deps: GarbageCollectionDeps,
  signal: AbortSignal,
): Promise<GarbageCollectionReport> {
  const { objects, archive, log, graceMs = GRACE_MS } = deps;
  // Delete old rows first: their objects were removed a grace period ago, and none has
  // been published again since.
  await archive.forgetRemoved(graceMs);
  const retired = await removeRetired(deps, graceMs, signal);
  const unreferenced =
    deps.isListed === true
      ? { removed: 0, kept: 0 }
      : await removeUnreferenced(deps, graceMs, signal);
  const report = {
    sweptFiles: await objects.removeAbandoned(graceMs, signal),
    removedObjects: retired + unreferenced.removed,
    keptObjects: unreferenced.kept,
  };
  if (report.keptObjects > 0)
    log.warn(
      report,
      'Objects are newer than the database, or belong to another one; ' +
        'they are kept',
    );
  else log.debug(report, 'Garbage collected');
  return report;
}

/** Removes the objects of superseded segments. @returns the number of objects removed */
async function removeRetired(
  deps: GarbageCollectionDeps,
  graceMs: number,
  signal: AbortSignal,
): Promise<number> {
  let removed = 0;
  for (;;) {
    // Segments are marked before their objects are removed, so that an object left
    // behind by a crash is later found to be unreferenced.
    const keys = await deps.archive.markRetired(graceMs);
    if (keys.length === 0) return removed;
    for (const key of keys) {
      signal.throwIfAborted();
      if (await removeObject(key, deps, signal)) removed += 1;
    }
  }
}

/**
 * Removes old unreferenced objects, but only those that this database knows it
 * published.
 */
async function removeUnreferenced(
  deps: GarbageCollectionDeps,
  graceMs: number,
  signal: AbortSignal,
): Promise<{ readonly removed: number; readonly kept: number }> {
  const { foreignReadMax = FOREIGN_READ_MAX } = deps;
  const before = nowMicros() - BigInt(graceMs) * 1000n;
  let removed = 0;
  let kept = 0;
  // An object and its manifest may be listed far apart and in either order. Decide only
  // once per pair.
  const decided = new Set<string>();
  for await (const batch of oldObjects(deps.objects, before, signal)) {
    const referenced = await deps.archive.referenced(batch);
    for (const key of batch) {
      if (referenced.has(key) || decided.has(key)) continue;
      decided.add(key);
      if (!(await isOurGarbage(key, deps, signal))) kept += 1;
      else if (await removeObject(key, deps, signal)) removed += 1;
      if (kept < foreignReadMax) continue;
      deps.log.warn(
        { kept, store: deps.objects.url },
        'The search for garbage ended: too many objects do not belong to ' +
          'this database',
      );
      return { removed, kept };
    }
  }
  return { removed, kept };
}

/**
 * Removes an object and its manifest, unless a publication has come to reference it
 * again. The manifest goes first, because a manifest means that its object is complete.
 * Before each delete, the lock on the key is checked in the database.
 */
function removeObject(
  key: string,
  { objects, archive }: GarbageCollectionDeps,
  signal: AbortSignal,
): Promise<boolean> {
  return archive.removeIfUnreferenced(key, signal, async (right) => {
    for (const part of [manifestKey(key), key]) {
      await right.check();
      await objects.remove(part, right.signal);
    }
  });
}

async function isOurGarbage(
  key: string,
  { objects, archive }: GarbageCollectionDeps,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const manifest = await readManifest(objects, manifestKey(key), signal);
    return await archive.isPublicationRecorded(manifest);
  } catch (error) {
    // Without a manifest, the publication was never finished, and nothing relies on the
    // object.
    if (errorCode(error) === 'OBJECT_MISSING') return true;
    if (errorCode(error) === 'MANIFEST_INVALID') return false;
    throw error;
  }
}

/**
 * Lists the keys of objects below `ledger/` that are older than an instant, in batches.
 * A manifest counts as its object, so a key may be yielded twice.
 */
async function* oldObjects(
  objects: ObjectStore,
  before: bigint,
  signal: AbortSignal,
): AsyncGenerator<readonly string[]> {
  let batch = new Set<string>();
  for await (const { key, modifiedAt } of objects.list('ledger/', signal)) {
    const objectKey = isManifestKey(key) ? objectKeyOf(key) : key;
    // Other programs may keep files in this folder too.
    if (modifiedAt < before && isSegmentKey(objectKey)) batch.add(objectKey);
    if (batch.size < BATCH_KEYS) continue;
    yield [...batch];
    batch = new Set();
  }
  if (batch.size > 0) yield [...batch];
}
