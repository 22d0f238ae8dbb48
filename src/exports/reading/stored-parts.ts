/**
 * Finds the parts of an object that can hold the entries of a range, so that an hour can
 * be read without the month around it.
 */
import { PermanentError } from '../../errors/errors.ts';
import {
  type Frame,
  type Manifest,
  readManifest,
} from '../../ledger/manifest.ts';
import { manifestKey } from '../../ledger/object-keys.ts';
import type { Range } from '../../ledger/ranges.ts';
import { SECOND_MICROS } from '../../time/time.ts';
import { FRAME_SIZES } from '../download/object-file.ts';
import type { ObjectStore, StoredRange } from '../../storage/object-store.ts';

/** An object with at most this much plain CSV, in bytes, has one frame. */
const READ_WHOLE_BYTES = BigInt(FRAME_SIZES.first);
/**
 * Parts with at most this many bytes between them are read as one, because a request
 * costs more than these bytes.
 */
const GAP_BYTES_MAX = 2n ** 20n;

/**
 * Looks up in an object's manifest which parts of the object a reader of a range needs.
 * @param plainBytes the size of the object's plain CSV
 * @returns undefined if the object has to be read whole
 */
export async function findStoredParts(
  { objectKey, plainBytes }: { objectKey: string; plainBytes: bigint },
  range: Range,
  objects: Pick<ObjectStore, 'read'>,
  signal: AbortSignal,
): Promise<readonly StoredRange[] | undefined> {
  if (plainBytes <= READ_WHOLE_BYTES) return undefined;
  const manifest = await readIfGood(objectKey, objects, signal);
  if (manifest?.frames === undefined || !isWhole(manifest)) return undefined;
  return partsHolding(manifest.frames, range);
}

/**
 * Returns the parts of an object whose frames can hold entries of a range, in ascending
 * order.
 */
export function partsHolding(
  frames: readonly Frame[],
  { from, to }: Range,
): StoredRange[] {
  const parts: { start: bigint; end: bigint }[] = [];
  for (const { offset, bytes, earliest, latest } of frames) {
    // `latest` is a whole second; the entry may lie anywhere within it.
    if (earliest >= to || latest + SECOND_MICROS <= from) continue;
    const last = parts.at(-1);
    if (last !== undefined && offset - last.end <= GAP_BYTES_MAX)
      last.end = offset + bytes;
    else parts.push({ start: offset, end: offset + bytes });
  }
  return parts;
}

/**
 * @returns undefined if the manifest is missing or damaged; the object can be read
 *   without it
 */
async function readIfGood(
  objectKey: string,
  objects: Pick<ObjectStore, 'read'>,
  signal: AbortSignal,
): Promise<Manifest | undefined> {
  try {
    const key = manifestKey(objectKey);
    const manifest = await readManifest(objects, key, signal);
    return manifest.objectKey === objectKey ? manifest : undefined;
  } catch (error) {
    const isAbsent =
      error instanceof PermanentError &&
      (error.code === 'MANIFEST_INVALID' || error.code === 'OBJECT_MISSING');
    if (!isAbsent) throw error;
    return undefined;
  }
}

/** Whether the frames of a manifest cover its whole object, without a gap. */
function isWhole({ frames = [], objectBytes }: Manifest): boolean {
  let end = 0n;
  for (const { offset, bytes } of frames) {
    if (offset !== end) return false;
    end += bytes;
  }
  return end === objectBytes;
}
