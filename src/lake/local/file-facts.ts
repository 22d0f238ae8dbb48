/** Local files: what they are, and how they come from the store. */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import type { ObjectStore } from '../../objects/object-store.ts';

const READ_BYTES = 2 ** 20;

export interface FileFacts {
  readonly bytes: bigint;
  readonly sha256: string;
}

/** Size and SHA-256 of a local file. */
export async function fileFacts(path: string, signal: AbortSignal): Promise<FileFacts> {
  const hash = createHash('sha256');
  let bytes = 0n;
  const chunks: AsyncIterable<Buffer> = createReadStream(path, { signal, highWaterMark: READ_BYTES });
  for await (const chunk of chunks) {
    hash.update(chunk);
    bytes += BigInt(chunk.length);
  }
  return { bytes, sha256: hash.digest('hex') };
}

/** Copies an object to a new local file. @returns what was read */
export async function fetchObject(
  objects: ObjectStore,
  key: string,
  path: string,
  signal: AbortSignal,
): Promise<FileFacts> {
  const hash = createHash('sha256');
  let bytes = 0n;
  const source = await objects.read(key, signal);
  const counted = async function* (chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      hash.update(chunk);
      bytes += BigInt(chunk.length);
      yield chunk;
    }
  };
  await pipeline(source, counted, createWriteStream(path, { flags: 'wx', mode: 0o600 }), { signal });
  return { bytes, sha256: hash.digest('hex') };
}
