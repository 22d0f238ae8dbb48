/**
 * Objects in a folder. A file is written whole into `.spool`, made durable, and then
 * linked to its key: a key is absent or whole at every instant, also after a power
 * failure.
 */
import { randomUUID } from 'node:crypto';
import type { Dirent } from 'node:fs';
import {
  copyFile,
  link,
  open,
  readdir,
  rename,
  stat,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { pathToFileURL } from 'node:url';
import { errorCode, PermanentError, RetryableError } from '../errors/errors.ts';
import {
  undefinedIfMissing,
  contentFacts,
  type FileFacts,
  measureStream,
} from '../files/byte-counter.ts';
import { streamFile, streamOpenFile } from '../files/file-stream.ts';
import { makeFolders } from '../files/folders.ts';
import type {
  ConditionSupport,
  ListedObject,
  ObjectFacts,
  ObjectStore,
  Outcome,
  StoreCapabilities,
  StoredRange,
} from './object-store.ts';
import { guardStore, type StoreKind } from './guarded-store.ts';

const SPOOL_FOLDER = '.spool';
/**
 * The filesystem has no hard links (some network and FAT mounts), or the file lies on
 * another one.
 */
const NO_LINKS = new Set([
  'EPERM',
  'ENOTSUP',
  'EOPNOTSUPP',
  'ENOSYS',
  'EMLINK',
  'EXDEV',
]);
/** Errors that may pass: space is freed, a mount returns. */
const RETRYABLE = new Set([
  'ENOSPC',
  'EDQUOT',
  'EIO',
  'EMFILE',
  'ENFILE',
  'EBUSY',
  'ESTALE',
  'ETIMEDOUT',
]);

/** @param folder is made on first use */
export function openFileStore(folder: string): ObjectStore {
  return guardStore(new FileStore(resolve(folder)));
}

class FileStore implements StoreKind {
  readonly url: string;
  readonly spoolDir: string;
  capabilities?: StoreCapabilities;
  readonly #root: string;

  constructor(root: string) {
    this.url = pathToFileURL(root).href;
    this.spoolDir = join(root, SPOOL_FOLDER);
    this.#root = root;
  }

  async putFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<Outcome> {
    signal.throwIfAborted();
    const target = this.#pathOf(key);
    const folder = dirname(target);
    await syncPath(path);
    await makeDurableFolders(folder);
    const isNew = await linkUnlessTaken(path, target, this.spoolDir);
    if (isNew) {
      await syncPath(folder);
      return 'written';
    }
    return (await hasContent(target, facts, signal)) ? 'written' : 'present';
  }

  async putBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix = '',
  ): Promise<Outcome> {
    await using file = await this.#spool(content, spoolPrefix, signal);
    return await this.putFile(key, file.path, contentFacts(content), signal);
  }

  async replaceBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<void> {
    const target = this.#pathOf(key);
    await makeDurableFolders(dirname(target));
    await using file = await this.#spool(content, '', signal);
    await syncPath(file.path);
    await rename(file.path, target);
    await syncPath(dirname(target));
  }

  /**
   * Without hard links the condition is ignored: of several writers the last one wins.
   */
  async tryPut(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<ConditionSupport> {
    await using file = await this.#spool(content, 'probe.', signal);
    const outcome = await linkOrFail(file.path, this.#pathOf(key));
    return outcome === 'taken' ? 'honoured' : 'ignored';
  }

  tryInParts(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<ConditionSupport> {
    return this.tryPut(key, content, signal);
  }

  async head(key: string): Promise<ObjectFacts | undefined> {
    const facts = await statIfPresent(this.#pathOf(key));
    if (facts?.isFile() !== true) return undefined;
    return { bytes: facts.size, sha256: undefined };
  }

  async read(
    key: string,
    signal: AbortSignal,
    range?: StoredRange,
  ): Promise<Readable | undefined> {
    const file = await open(this.#pathOf(key), 'r').catch(undefinedIfMissing);
    if (file === undefined) return undefined;
    if (range === undefined) return await streamOpenFile(file, { signal });
    const start = Number(range.start);
    const end = Number(range.end) - 1;
    return await streamOpenFile(file, { signal, start, end });
  }

  list(prefix: string, signal: AbortSignal): AsyncGenerator<ListedObject> {
    const folder = prefix.slice(0, prefix.lastIndexOf('/') + 1);
    return this.#listFolder(folder, prefix, signal);
  }

  async remove(key: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    await unlink(this.#pathOf(key)).catch(undefinedIfMissing);
  }

  async abortUploads(): Promise<number> {
    return 0;
  }

  mapError(what: string, error: unknown): Error {
    return fileError(`${what} in ${this.url}`, error);
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  #pathOf(key: string): string {
    return join(this.#root, key);
  }

  #spool(
    content: Buffer,
    prefix: string,
    signal: AbortSignal,
  ): Promise<TemporaryFile> {
    const path = join(this.spoolDir, `${prefix}bytes.${randomUUID()}`);
    return writeTemporary(path, content, signal);
  }

  /** Lists in the order of keys: a folder's name sorts together with its slash. */
  async *#listFolder(
    folder: string,
    prefix: string,
    signal: AbortSignal,
  ): AsyncGenerator<ListedObject> {
    signal.throwIfAborted();
    const entries = await readdir(this.#pathOf(folder), {
      withFileTypes: true,
    }).catch(undefinedIfMissing);
    const keyOf = (entry: Dirent): string =>
      folder + entry.name + (entry.isDirectory() ? '/' : '');
    const sorted = (entries ?? [])
      .filter(({ name }) => name !== SPOOL_FOLDER)
      .map((entry) => ({ key: keyOf(entry), entry }))
      .filter(({ key }) => key.startsWith(prefix) || prefix.startsWith(key))
      .toSorted((a, b) => (a.key < b.key ? -1 : 1));

    for (const { key, entry } of sorted) {
      if (entry.isDirectory()) yield* this.#listFolder(key, prefix, signal);
      if (!entry.isFile()) continue;
      const facts = await statIfPresent(this.#pathOf(key));
      if (facts === undefined) continue;
      yield { key, bytes: facts.size, modifiedAt: facts.mtimeNs / 1000n };
    }
  }
}

function statIfPresent(path: string) {
  return stat(path, { bigint: true }).catch(undefinedIfMissing);
}

/** Classifies an error of the local disk. */
export function fileError(what: string, error: unknown): Error {
  if (error instanceof PermanentError || error instanceof RetryableError)
    return error;
  if (error instanceof Error && error.name === 'AbortError') return error;
  const code = errorCode(error);
  const details = { code: `OBJECT_STORE_${code}`, cause: error };
  if (RETRYABLE.has(code)) {
    const message = `Cannot ${what}: ${code}; it is tried again, check the disk`;
    return new RetryableError(message, details);
  }
  const message = `Cannot ${what}: ${code}; check the folder and its rights`;
  return new PermanentError(message, details);
}

/**
 * Links a file to its key. Without hard links, a copy in the spool is renamed: the key
 * names its content, so a race replaces a file by an equal one.
 * @returns false if something lies under the key
 */
async function linkUnlessTaken(
  from: string,
  target: string,
  spoolDir: string,
): Promise<boolean> {
  const outcome = await linkOrFail(from, target);
  if (outcome !== 'no links') return outcome === 'linked';
  if ((await statIfPresent(target)) !== undefined) return false;

  await makeFolders(spoolDir);
  const name = `${basename(from)}.copy.${randomUUID()}`;
  await using copy = temporaryFile(join(spoolDir, name));
  await copyFile(from, copy.path);
  await syncPath(copy.path);
  await rename(copy.path, target);
  return true;
}

/** A file that is removed on disposal, if it is still there. */
interface TemporaryFile extends AsyncDisposable {
  readonly path: string;
}

function temporaryFile(path: string): TemporaryFile {
  return {
    path,
    [Symbol.asyncDispose]: () => unlink(path).catch(undefinedIfMissing),
  };
}

async function writeTemporary(
  path: string,
  content: Buffer,
  signal: AbortSignal,
): Promise<TemporaryFile> {
  const file = temporaryFile(path);
  await makeFolders(dirname(path));
  try {
    await writeFile(path, content, { flag: 'wx', signal });
  } catch (error) {
    await file[Symbol.asyncDispose]();
    throw error;
  }
  return file;
}

async function linkOrFail(
  from: string,
  target: string,
): Promise<'linked' | 'taken' | 'no links'> {
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

async function hasContent(
  target: string,
  { sha256 }: FileFacts,
  signal: AbortSignal,
): Promise<boolean> {
  const stream = await streamFile(target, { signal });
  return (await measureStream(stream)).sha256 === sha256;
}

/** Makes a folder with its parents, and makes the entry of each new one durable. */
async function makeDurableFolders(folder: string): Promise<void> {
  const first = await makeFolders(folder);
  if (first === undefined) return;
  let made = folder;
  while (made.length >= first.length) {
    await syncPath(made);
    made = dirname(made);
  }
  await syncPath(dirname(first));
}

async function syncPath(path: string): Promise<void> {
  await using handle = await open(path, 'r');
  await handle.sync();
}
