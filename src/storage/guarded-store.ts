/** What all object stores have in common: their checks, their errors, and what is told where a key is taken. */
import { lstat, readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { PermanentError } from '../errors/errors.ts';
import { undefinedIfMissing, type FileFacts } from '../files/byte-counter.ts';
import { makeFolders } from '../files/folders.ts';
import { checkKey, checkPrefix } from '../ledger/object-keys.ts';
import type {
  ListedObject,
  ObjectStore,
  Outcome,
  StoreCapabilities,
} from './object-store.ts';
import { type StoreProbe, probeStore } from './probe-store.ts';

/** What each kind of store does its own way. Keys are checked; errors are as they came. */
export interface StoreKind
  extends
    StoreProbe,
    Pick<ObjectStore, 'url' | 'head' | 'remove' | typeof Symbol.asyncDispose> {
  /** Where objects grow before they are published. Nothing in it is visible to readers. */
  readonly spoolDir: string;
  putFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<Outcome>;
  readonly putBytes: ObjectStore['putIfAbsent'];
  /** What the last trial has found. */
  known?: StoreCapabilities;
  /** undefined where nothing lies there. */
  read(...asked: Parameters<ObjectStore['read']>): Promise<Readable | undefined>;
  list(prefix: string, signal: AbortSignal): AsyncGenerator<ListedObject>;
  /** Of dead processes, beside the spool. @returns how many */
  abortUploads(startedBeforeMs: number, signal: AbortSignal): Promise<number>;
}

export function openStore(kind: StoreKind): ObjectStore {
  const { url } = kind;
  const spool = openSpool(kind.spoolDir);
  const guard = async <Result>(
    what: string,
    work: () => Promise<Result>,
  ): Promise<Result> => {
    try {
      return await work();
    } catch (error) {
      throw kind.mapError(what, error);
    }
  };
  const publish = async (key: string, write: () => Promise<Outcome>) => {
    if ((await guard(`publish ${key}`, write)) === 'written') return;
    throw new PermanentError(
      `Cannot publish ${key} in ${url}: other bytes lie there already; it was changed from outside, or the disk is failing`,
      { code: 'OBJECT_CONFLICT', meta: { key } },
    );
  };
  const store: ObjectStore = {
    url,
    spoolPath: (name) => guard(`spool ${name}`, () => spool.path(name)),
    clearSpool: (prefix) =>
      guard(`clear the spool of ${prefix}`, () => spool.clear(prefix)),
    publishFile: (key, ...file) =>
      publish(key, () => kind.putFile(checkKey(key), ...file)),
    publishBytes: (key, ...content) =>
      publish(key, () => kind.putBytes(checkKey(key), ...content)),
    putIfAbsent: (key, ...content) =>
      guard(`publish ${key}`, () => kind.putBytes(checkKey(key), ...content)),
    head: (key, signal) =>
      guard(`look up ${key}`, () => kind.head(checkKey(key), signal)),
    read: (key, ...how) =>
      guard(`read ${key}`, async () => {
        const bytes = await kind.read(checkKey(key), ...how);
        if (bytes !== undefined) return bytes;
        throw new PermanentError(`Cannot read the object ${key}: it is not in ${url}`, {
          code: 'OBJECT_MISSING',
          meta: { key },
        });
      }),
    async *list(prefix, signal) {
      try {
        yield* kind.list(checkPrefix(prefix), signal);
      } catch (error) {
        throw kind.mapError(`list ${prefix}`, error);
      }
    },
    remove: (key, signal) =>
      guard(`remove ${key}`, () => kind.remove(checkKey(key), signal)),
    sweep: (olderThanMs, signal) =>
      guard('clear away what dead processes left', async () => {
        const beforeMs = Date.now() - olderThanMs;
        return (
          (await spool.clear('', beforeMs)) + (await kind.abortUploads(beforeMs, signal))
        );
      }),
    capabilities: async (signal) => kind.known ?? store.tryOut(signal),
    tryOut: async (signal, stepMaxMs) =>
      (kind.known = await probeStore(store, kind, signal, stepMaxMs)),
    [Symbol.asyncDispose]: () => kind[Symbol.asyncDispose](),
  };
  return store;
}

function openSpool(folder: string) {
  return {
    /** Where a file of this name goes; the folder is made. */
    async path(name: string) {
      const path = join(folder, checkKey(name).replaceAll('/', '_'));
      await makeFolders(folder);
      return path;
    },
    /** Removes the files whose names begin with `prefix` and that nobody has written to since. */
    async clear(prefix: string, writtenBeforeMs = Number.POSITIVE_INFINITY) {
      let removed = 0;
      for (const name of (await readdir(folder).catch(undefinedIfMissing)) ?? []) {
        if (!name.startsWith(prefix)) continue;
        const path = join(folder, name);
        const facts = await lstat(path).catch(undefinedIfMissing);
        if (
          facts === undefined ||
          facts.isDirectory() ||
          facts.mtimeMs >= writtenBeforeMs
        )
          continue;
        await unlink(path).catch(undefinedIfMissing);
        removed += 1;
      }
      return removed;
    },
  };
}
