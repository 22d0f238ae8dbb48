/**
 * A key names the plain CSV, but one CSV can be compressed to different bytes (another version of the
 * library, other windows). Where an object with the same content lies there already, it is taken as it is.
 */
import { createHash } from 'node:crypto';
import { PassThrough, pipeline } from 'node:stream';
import { errorCode } from '../../core/errors.ts';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import { manifestKey } from '../../ledger/objects/object-keys.ts';
import { plainStream } from '../../ledger/objects/plain-stream.ts';
import type { ObjectStore } from '../../objects/object-store.ts';

/**
 * An object that does not hold what its key names is removed, with its manifest.
 * @returns the manifest with the sums of what is stored, or undefined where nothing good lies under its key
 */
export async function existingObject(
  manifest: Manifest,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<Manifest | undefined> {
  const { objectKey, compression } = manifest;
  const head = await objects.head(objectKey, signal);
  if (head === undefined) return undefined;
  if (head.sha256 === manifest.objectSha256 && head.bytes === manifest.objectBytes) return manifest;
  const storedHash = createHash('sha256');
  const plainHash = createHash('sha256');
  let objectBytes = 0n;
  const counted = new PassThrough();
  counted.on('data', (chunk: Buffer) => {
    storedHash.update(chunk);
    objectBytes += BigInt(chunk.length);
  });
  const stored = pipeline(await objects.read(objectKey, signal), counted, () => undefined);
  const plain = plainStream(stored, compression);
  try {
    for await (const chunk of plain) plainHash.update(chunk as Buffer);
  } catch (error) {
    // A damaged archive is other content, too; what the store said is the store's affair.
    if (!/^(?:ZSTD_|Z_)/.test(errorCode(error))) throw error;
  }
  if (plainHash.digest('hex') === manifest.sha256) {
    return { ...manifest, objectBytes, objectSha256: storedHash.digest('hex') };
  }
  // Its key names its content: it is damaged, and nobody can use it.
  await objects.remove(manifestKey(objectKey), signal);
  await objects.remove(objectKey, signal);
  return undefined;
}
