/** Local files: what they are, and how they come from the store. */
import { createReadStream, createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { ByteSums, type FileFacts, measure } from '../../core/byte-sums.ts';
import type { ObjectStore } from '../../objects/object-store.ts';

const READ_BYTES = 2 ** 20;

/** Size and SHA-256 of a local file. */
export function fileFacts(path: string, signal: AbortSignal): Promise<FileFacts> {
  return measure(createReadStream(path, { signal, highWaterMark: READ_BYTES }));
}

/** Copies an object to a new local file. @returns what was read */
export async function fetchObject(
  objects: ObjectStore,
  key: string,
  path: string,
  signal: AbortSignal,
): Promise<FileFacts> {
  const sums = new ByteSums();
  const source = await objects.read(key, signal);
  await pipeline(source, sums.through(), createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
  return sums.facts();
}
