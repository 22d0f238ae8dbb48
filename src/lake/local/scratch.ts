/**
 * Scratch files on the local disk: temporary folders, and local copies of objects.
 */
import { createWriteStream } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import {
  ByteCounter,
  type FileFacts,
  measureStream,
} from '../../files/byte-counter.ts';
import { streamFile } from '../../files/file-stream.ts';
import { makeFolders } from '../../files/folders.ts';
import type { ObjectStore } from '../../storage/object-store.ts';

const PREFIX = 'lake-';
/**
 * No build or query takes this long, so a folder older than this was left by a killed
 * process.
 */
const LEFT_BEHIND_MS = 24 * 3_600_000;

/** Creates a folder under `parent` that is removed with its contents on disposal. */
export async function scratchFolder(
  parent: string,
): Promise<AsyncDisposable & { readonly path: string }> {
  await makeFolders(parent);
  const path = await mkdtemp(join(parent, PREFIX));
  return {
    path,
    [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }),
  };
}

/** Removes the folders of builds and queries that were killed. */
export async function removeLeftovers(parent: string): Promise<void> {
  await makeFolders(parent);
  for (const name of await readdir(parent)) {
    if (!name.startsWith(PREFIX)) continue;
    const path = join(parent, name);
    // Skip a folder that cannot be read, because it must not stop a build.
    const facts = await stat(path).catch(() => undefined);
    if (facts !== undefined && Date.now() - facts.mtimeMs > LEFT_BEHIND_MS)
      await rm(path, { recursive: true, force: true });
  }
}

/** Computes the size and SHA-256 of a local file. */
export async function fileFacts(
  path: string,
  signal: AbortSignal,
): Promise<FileFacts> {
  return measureStream(await streamFile(path, { signal }));
}

/** An object store, and a signal that aborts calls to it. */
export interface StoreAccess {
  readonly objects: ObjectStore;
  readonly signal: AbortSignal;
}

/**
 * Copies an object to a new local file.
 * @returns the size and SHA-256 of the bytes that were read
 */
export async function fetchObject(
  access: StoreAccess,
  key: string,
  path: string,
): Promise<FileFacts> {
  const { objects, signal } = access;
  const sums = new ByteCounter();
  const source = await objects.read(key, signal);
  await pipeline(
    source,
    sums.through(),
    createWriteStream(path, { flags: 'wx', mode: 0o600 }),
    { signal },
  );
  return sums.facts();
}
