/**
 * What all object stores share: key checks, error classification, the spool, and the
 * error for a key that already exists.
 */
import { lstat, readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { PermanentError } from '../errors/errors.ts';
import { undefinedIfMissing, type FileFacts } from '../files/byte-counter.ts';
import { makeFolders } from '../files/folders.ts';
import { checkKey, checkPrefix } from '../ledger/object-keys.ts';
import type { SecretState } from '../network/rotating-secret.ts';
import type {
  ListedObject,
  ObjectFacts,
  ObjectStore,
  Outcome,
  StoreCapabilities,
  StoredRange,
} from './object-store.ts';
import { type StoreProbe, probeStore } from './probe-store.ts';

/**
 * The operations that each kind of store implements. They receive checked keys and throw
 * unclassified errors.
 */
export interface StoreKind extends StoreProbe, AsyncDisposable {
  readonly url: string;
  /** The state of the store's credentials; undefined if it needs none. */
  readonly secret?: SecretState | undefined;
  /**
   * The folder in which objects are written before they are published, invisible to
   * readers.
   */
  readonly spoolDir: string;
  /**
   * The result of the last probe, which may allow the store to skip a check after a
   * write.
   */
  capabilities?: StoreCapabilities;
  putFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<Outcome>;
  putBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<Outcome>;
  replaceBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<void>;
  head(key: string, signal: AbortSignal): Promise<ObjectFacts | undefined>;
  /**
   * Reads the stored bytes.
   * @returns undefined if the key is absent
   */
  read(
    key: string,
    signal: AbortSignal,
    range?: StoredRange,
  ): Promise<Readable | undefined>;
  list(prefix: string, signal: AbortSignal): AsyncGenerator<ListedObject>;
  remove(key: string, signal: AbortSignal): Promise<void>;
  /**
   * Aborts the unfinished uploads of dead processes. The store keeps these uploads, so
   * clearing the spool does not remove them.
   * @returns the number of aborted uploads
   */
  abortUploads(startedBeforeMs: number, signal: AbortSignal): Promise<number>;
}

/** Wraps a kind of store as an object store. */
export function guardStore(kind: StoreKind): ObjectStore {
  return new GuardedStore(kind);
}

class GuardedStore implements ObjectStore {
  readonly #kind: StoreKind;
  readonly #spool: Spool;

  constructor(kind: StoreKind) {
    this.#kind = kind;
    this.#spool = new Spool(kind.spoolDir);
  }

  get url(): string {
    return this.#kind.url;
  }

  get secret(): SecretState | undefined {
    return this.#kind.secret;
  }

  spoolPath(name: string): Promise<string> {
    return this.#guard(`spool ${name}`, () => this.#spool.path(name));
  }

  clearSpool(prefix: string): Promise<number> {
    return this.#guard(`clear the spool of ${prefix}`, () =>
      this.#spool.clear(prefix),
    );
  }

  publishFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<void> {
    return this.#publish(key, () =>
      this.#kind.putFile(checkKey(key), path, facts, signal),
    );
  }

  publishBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<void> {
    return this.#publish(key, () =>
      this.#kind.putBytes(checkKey(key), content, signal, spoolPrefix),
    );
  }

  putIfAbsent(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<Outcome> {
    return this.#guard(`publish ${key}`, () =>
      this.#kind.putBytes(checkKey(key), content, signal, spoolPrefix),
    );
  }

  replaceBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<void> {
    return this.#guard(`replace ${key}`, () =>
      this.#kind.replaceBytes(checkKey(key), content, signal),
    );
  }

  head(key: string, signal: AbortSignal): Promise<ObjectFacts | undefined> {
    return this.#guard(`look up ${key}`, () =>
      this.#kind.head(checkKey(key), signal),
    );
  }

  read(
    key: string,
    signal: AbortSignal,
    range?: StoredRange,
  ): Promise<Readable> {
    return this.#guard(`read ${key}`, async () => {
      const bytes = await this.#kind.read(checkKey(key), signal, range);
      if (bytes !== undefined) return bytes;
      const message = `Cannot read the object ${key}: it is not in ${this.url}`;
      throw new PermanentError(message, {
        code: 'OBJECT_MISSING',
        meta: { key },
      });
    });
  }

  async *list(
    prefix: string,
    signal: AbortSignal,
  ): AsyncGenerator<ListedObject> {
    try {
      yield* this.#kind.list(checkPrefix(prefix), signal);
    } catch (error) {
      throw this.#kind.mapError(`list ${prefix}`, error);
    }
  }

  remove(key: string, signal: AbortSignal): Promise<void> {
    return this.#guard(`remove ${key}`, () =>
      this.#kind.remove(checkKey(key), signal),
    );
  }

  removeAbandoned(olderThanMs: number, signal: AbortSignal): Promise<number> {
    return this.#guard('remove what dead processes left', async () => {
      const beforeMs = Date.now() - olderThanMs;
      const files = await this.#spool.clear('', beforeMs);
      const uploads = await this.#kind.abortUploads(beforeMs, signal);
      return files + uploads;
    });
  }

  async capabilities(signal: AbortSignal): Promise<StoreCapabilities> {
    return this.#kind.capabilities ?? this.probe(signal);
  }

  async probe(
    signal: AbortSignal,
    stepMaxMs?: number,
  ): Promise<StoreCapabilities> {
    const found = await probeStore(this, this.#kind, signal, stepMaxMs);
    this.#kind.capabilities = found;
    return found;
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.#kind[Symbol.asyncDispose]();
  }

  async #publish(key: string, write: () => Promise<Outcome>): Promise<void> {
    const outcome = await this.#guard(`publish ${key}`, write);
    if (outcome === 'written') return;
    throw new PermanentError(
      `Cannot publish ${key} in ${this.url}: different bytes are already ` +
        'there; it was changed from outside, or the disk is failing',
      { code: 'OBJECT_CONFLICT', meta: { key } },
    );
  }

  async #guard<Result>(
    what: string,
    work: () => Promise<Result>,
  ): Promise<Result> {
    try {
      return await work();
    } catch (error) {
      throw this.#kind.mapError(what, error);
    }
  }
}

/** The folder in which objects are written before they are published. */
class Spool {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Returns the path for a file of this name, creating the folder if needed. */
  async path(name: string): Promise<string> {
    const path = join(this.#folder, checkKey(name).replaceAll('/', '_'));
    await makeFolders(this.#folder);
    return path;
  }

  /**
   * Removes the files whose names begin with `prefix` and that were last written before
   * the given time.
   */
  async clear(
    prefix: string,
    writtenBeforeMs = Number.POSITIVE_INFINITY,
  ): Promise<number> {
    const names = (await readdir(this.#folder).catch(undefinedIfMissing)) ?? [];
    let removed = 0;
    for (const name of names.filter((one) => one.startsWith(prefix))) {
      const path = join(this.#folder, name);
      const facts = await lstat(path).catch(undefinedIfMissing);
      if (facts === undefined || facts.isDirectory()) continue;
      if (facts.mtimeMs >= writtenBeforeMs) continue;
      await unlink(path).catch(undefinedIfMissing);
      removed += 1;
    }
    return removed;
  }
}
