/**
 * Objects in a folder. A file is written whole into `.spool`, made durable, then linked to its key: a
 * key is absent or whole at every instant, also after a power cut.
 */
import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { copyFile, link, open, readdir, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { pathToFileURL } from 'node:url';
import { errorCode, PermanentError, RetryableError } from '../core/errors.ts';
import { absent, factsOf, type FileFacts, measure } from '../core/byte-sums.ts';
import { makeFolders } from '../core/folders.ts';
import { checkKey, checkPrefix } from '../ledger/objects/object-keys.ts';
import type { ConditionSupport, ListedObject, ObjectStore, StoreCapabilities } from './object-store.ts';
import { Spool } from './spool.ts';
import { tryOutStore } from './try-out-store.ts';

const SPOOL_FOLDER = '.spool';
/** Hard links do not exist (some network and FAT mounts), or the file lies on another filesystem. */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK', 'EXDEV']);
/** Retryable: space may be freed, a mount may return. */
const RETRYABLE = new Set(['ENOSPC', 'EDQUOT', 'EIO', 'EMFILE', 'ENFILE', 'EBUSY', 'ESTALE', 'ETIMEDOUT']);
const READ_BYTES = 2 ** 20;

export class FileStore implements ObjectStore {
  readonly url: string;
  readonly #root: string;
  readonly #spool: Spool;
  #known: StoreCapabilities | undefined;

  /** @param root an absolute path; made on first use */
  constructor(root: string) {
    this.#root = resolve(root);
    this.#spool = new Spool(join(this.#root, SPOOL_FOLDER));
    this.url = pathToFileURL(this.#root).href;
  }

  spoolPath(name: string): Promise<string> {
    return this.#guard('spool', name, () => this.#spool.path(name));
  }

  clearSpool(prefix: string): Promise<{ removed: number }> {
    return this.#guard('clear the spool of', prefix, () => this.#spool.clear(prefix));
  }

  publishFile(key: string, path: string, facts: FileFacts, signal: AbortSignal): Promise<void> {
    return this.#guard('publish', key, async () => {
      signal.throwIfAborted();
      const target = this.#path(key);
      await syncPath(path);
      await makeDurableFolders(dirname(target));
      if (await this.#linkUnlessTaken(path, target)) await syncPath(dirname(target));
      else await compare(target, facts, signal);
    });
  }

  publishBytes(key: string, content: Buffer, signal: AbortSignal, spoolPrefix = ''): Promise<void> {
    return this.#guard('publish', key, () =>
      this.#withSpooled(spoolPrefix, content, signal, (path) =>
        this.publishFile(key, path, factsOf(content), signal),
      ),
    );
  }

  async putIfAbsent(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<'written' | 'present'> {
    try {
      await this.publishBytes(key, content, signal, spoolPrefix);
      return 'written';
    } catch (error) {
      if (errorCode(error) === 'OBJECT_CONFLICT') return 'present';
      throw error;
    }
  }

  head(key: string): Promise<{ bytes: bigint; sha256: string | undefined } | undefined> {
    return this.#guard('look up', key, async () => {
      const facts = await stat(this.#path(key), { bigint: true }).catch(absent);
      return facts?.isFile() === true ? { bytes: facts.size, sha256: undefined } : undefined;
    });
  }

  read(key: string, signal: AbortSignal, range?: { start: bigint; end: bigint }): Promise<Readable> {
    return this.#guard('read', key, async () => {
      const file = await open(this.#path(key), 'r').catch(absent);
      if (file === undefined) {
        throw new PermanentError(`Cannot read the object ${key}: it is not in ${this.url}`, {
          code: 'OBJECT_MISSING',
          meta: { key },
        });
      }
      const limits = range === undefined ? {} : { start: Number(range.start), end: Number(range.end) - 1 };
      return createReadStream('', { fd: file, signal, highWaterMark: READ_BYTES, ...limits });
    });
  }

  async *list(prefix: string, signal: AbortSignal): AsyncIterable<ListedObject> {
    checkPrefix(prefix);
    yield* this.#listFolder(prefix.slice(0, prefix.lastIndexOf('/') + 1), prefix, signal);
  }

  remove(key: string, signal: AbortSignal): Promise<void> {
    return this.#guard('remove', key, async () => {
      signal.throwIfAborted();
      await unlink(this.#path(key)).catch(absent);
    });
  }

  sweep(olderThanMs: number): Promise<{ removed: number }> {
    return this.#guard('sweep', SPOOL_FOLDER, () => this.#spool.sweep(olderThanMs));
  }

  async capabilities(signal: AbortSignal): Promise<StoreCapabilities> {
    this.#known ??= await this.tryOut(signal);
    return this.#known;
  }

  tryOut(signal: AbortSignal, stepMaxMs?: number): Promise<StoreCapabilities> {
    const put = (key: string, content: Buffer, either: AbortSignal): Promise<ConditionSupport> =>
      this.#guard('try out', key, () =>
        this.#withSpooled('probe.', content, either, async (path) => {
          // Without hard links the later of two writers wins.
          const how = await linkOrFail(path, this.#path(key));
          return how === 'taken' ? 'honoured' : 'ignored';
        }),
      );
    return tryOutStore(this, { put, inParts: put }, signal, stepMaxMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Nothing is held between calls.
  }

  #path(key: string): string {
    return join(this.#root, checkKey(key));
  }

  async #withSpooled<Result>(
    prefix: string,
    content: Buffer,
    signal: AbortSignal,
    use: (path: string) => Promise<Result>,
  ): Promise<Result> {
    const path = await this.#spool.path(`${prefix}bytes.${randomUUID()}`);
    try {
      await writeFile(path, content, { flag: 'wx', signal });
      return await use(path);
    } finally {
      await unlink(path).catch(absent);
    }
  }

  async *#listFolder(folder: string, prefix: string, signal: AbortSignal): AsyncIterable<ListedObject> {
    signal.throwIfAborted();
    const entries = (await readdir(join(this.#root, folder), { withFileTypes: true }).catch(absent)) ?? [];
    // A folder sorts with its slash, as its keys do.
    const named = entries.map((entry) => ({
      entry,
      key: folder + entry.name + (entry.isDirectory() ? '/' : ''),
    }));
    for (const { entry, key } of named.toSorted((a, b) => (a.key < b.key ? -1 : 1))) {
      if (entry.name === SPOOL_FOLDER || !(key.startsWith(prefix) || prefix.startsWith(key))) continue;
      if (entry.isDirectory()) yield* this.#listFolder(key, prefix, signal);
      else if (entry.isFile()) {
        const facts = await stat(join(this.#root, key), { bigint: true }).catch(absent);
        if (facts !== undefined) yield { key, bytes: facts.size, modifiedAt: facts.mtimeNs / 1000n };
      }
    }
  }

  /**
   * Without links, a copy in the spool is renamed. The key names its content, so a race replaces it by itself.
   * @returns false where something lies there
   */
  async #linkUnlessTaken(from: string, target: string): Promise<boolean> {
    const how = await linkOrFail(from, target);
    if (how !== 'no links') return how === 'linked';
    if ((await stat(target).catch(absent)) !== undefined) return false;
    const copy = await this.#spool.path(`${basename(from)}.copy.${randomUUID()}`);
    try {
      await copyFile(from, copy);
      await syncPath(copy);
      await rename(copy, target);
    } finally {
      await unlink(copy).catch(absent);
    }
    return true;
  }

  async #guard<Result>(action: string, what: string, work: () => Promise<Result>): Promise<Result> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof PermanentError || error instanceof RetryableError) throw error;
      if (error instanceof Error && error.name === 'AbortError') throw error;
      const code = errorCode(error);
      const message = `Cannot ${action} ${what} in ${this.url}: ${code}`;
      const details = { code: `OBJECT_STORE_${code}`, cause: error, meta: { key: what } };
      throw RETRYABLE.has(code)
        ? new RetryableError(`${message}; it is tried again, check the disk`, details)
        : new PermanentError(`${message}; check the folder and its rights`, details);
    }
  }
}

async function linkOrFail(from: string, target: string): Promise<'linked' | 'taken' | 'no links'> {
  try {
    await link(from, target);
    return 'linked';
  } catch (error) {
    const code = errorCode(error);
    if (code === 'EEXIST') return 'taken';
    if (NO_LINKS.has(code)) return 'no links';
    throw error;
  }
}

async function compare(target: string, facts: FileFacts, signal: AbortSignal): Promise<void> {
  const { size } = await stat(target, { bigint: true });
  const readAll = (): Promise<FileFacts> =>
    measure(createReadStream(target, { signal, highWaterMark: READ_BYTES }));
  if (size === facts.bytes && (await readAll()).sha256 === facts.sha256) return;
  throw new PermanentError(
    `Cannot publish ${target}: other bytes lie there already; it was changed from outside, or the disk is failing`,
    { code: 'OBJECT_CONFLICT', meta: { path: target, bytes: facts.bytes, sha256: facts.sha256 } },
  );
}

/** Makes a folder with its parents, and makes each new one durable. */
async function makeDurableFolders(folder: string): Promise<void> {
  const first = await makeFolders(folder);
  if (first === undefined) return;
  for (let made = folder; made.length >= first.length; made = dirname(made)) await syncPath(made);
  await syncPath(dirname(first));
}

async function syncPath(path: string): Promise<void> {
  await using handle = await open(path, 'r');
  await handle.sync();
}
