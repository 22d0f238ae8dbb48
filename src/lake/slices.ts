/**
 * Which rows of a month a build reads from their objects: DuckDB reads a large object several times as fast
 * as Postgres sends its rows. What it reads is proved by the object's SHA-256 and by the number of rows that
 * the load found in the month.
 */
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { errorCode, PermanentError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { fileFacts } from './file-facts.ts';
import { isLocalStore, storedPath } from './local-files.ts';
import type { LakeSlice, SliceLimits } from './ports.ts';

/** Fewer rows come sooner from Postgres, and deserve no file of their own. */
export const SLICE_LIMITS: SliceLimits = {
  rowsMin: 50_000n,
  readsMax: 8n,
  // Sorting them spills, and the copy of a remote one takes disk.
  bytesMax: 2n ** 30n,
};

export interface LocalObject extends AsyncDisposable {
  readonly path: string;
}

/**
 * The slice's object as a file that is what the warehouse recorded: a local store's own, or a copy below
 * `folder` for as long as it is used.
 * @throws PermanentError `OBJECT_MISSING`, or `OBJECT_CORRUPT` where it is another
 */
export async function localObject(
  slice: LakeSlice,
  objects: ObjectStore,
  folder: string,
  signal: AbortSignal,
): Promise<LocalObject> {
  const isLocal = isLocalStore(objects);
  const path = isLocal
    ? storedPath(objects, slice.objectKey)
    : join(folder, `${slice.segmentId}-${slice.month}`);
  await using copy = new AsyncDisposableStack();
  if (!isLocal) {
    copy.defer(() => rm(path, { force: true }));
    await pipeline(await objects.read(slice.objectKey, signal), createWriteStream(path), { signal });
  }
  const { bytes, sha256 } = await fileFacts(path, signal).catch((error: unknown) => {
    throw errorCode(error) === 'ENOENT' ? missing(slice) : error;
  });
  if (bytes !== slice.objectBytes || sha256 !== slice.objectSha256) throw notAsRecorded(slice);
  const owned = copy.move();
  return { path, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

function notAsRecorded({ objectKey }: LakeSlice): PermanentError {
  return new PermanentError(
    `Cannot use the object ${objectKey}: its bytes are not those recorded; restore it from a backup, or export the range again`,
    { code: 'OBJECT_CORRUPT', meta: { key: objectKey } },
  );
}

function missing({ objectKey }: LakeSlice): PermanentError {
  return new PermanentError(`Cannot read the object ${objectKey}: it is not there`, {
    code: 'OBJECT_MISSING',
    meta: { key: objectKey },
  });
}
