/**
 * A key names the plain CSV, but one CSV can be compressed to different bytes (another version of the
 * library, other windows). Where an object with the same content lies there already, it is taken as it is.
 */
import { ByteSums } from '../../core/byte-sums.ts';
import { pipeline } from 'node:stream';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import { manifestKey } from '../../ledger/objects/object-keys.ts';
import { isArchiveDamage, plainStream } from '../../ledger/objects/plain-stream.ts';
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
  const [stored, plain] = [new ByteSums(), new ByteSums()];
  const bytes = pipeline(await objects.read(objectKey, signal), stored.through(), () => undefined);
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
