/** Local files: what they are, and how they come from the store. */
import { createReadStream, createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { type FileFacts, measure, Measured } from '../../core/file-facts.ts';
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
  const measured = new Measured();
  const source: AsyncIterable<Buffer> = await objects.read(key, signal);
  await pipeline(measured.pass(source), createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
  return measured.facts();
}
