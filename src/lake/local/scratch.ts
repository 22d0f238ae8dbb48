/** Files on the local disk: folders that live as long as what uses them, and objects that come from the store. */
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ByteCounter, type FileFacts, measureStream } from '../../files/byte-counter.ts';
import { makeFolders } from '../../files/folders.ts';
import type { ObjectStore } from '../../storage/object-store.ts';

const PREFIX = 'lake-';
/** No build and no query lasts that long: its process was killed. */
const LEFT_BEHIND_MS = 24 * 3_600_000;

/** A new folder below `parent`, removed with all that is in it. */
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
export async function sweepScratch(parent: string): Promise<void> {
  await makeFolders(parent);
  for (const name of await readdir(parent)) {
    if (!name.startsWith(PREFIX)) continue;
    const path = join(parent, name);
    // One that cannot be looked at stays: it must not keep a build from its own.
    const facts = await stat(path).catch(() => undefined);
    if (facts !== undefined && Date.now() - facts.mtimeMs > LEFT_BEHIND_MS)
      await rm(path, { recursive: true, force: true });
  }
}

const READ_BYTES = 2 ** 20;

/** Size and SHA-256 of a local file. */
export function fileFacts(path: string, signal: AbortSignal): Promise<FileFacts> {
  return measureStream(createReadStream(path, { signal, highWaterMark: READ_BYTES }));
}

/** A store, and a way to stop what is asked of it. */
export interface StoreAccess {
  readonly objects: ObjectStore;
  readonly signal: AbortSignal;
}

/** Copies an object to a new local file. @returns what was read */
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
