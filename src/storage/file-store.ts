/**
 * Objects in a folder. A file is written completely in `.spool`, made durable, and then
 * linked to its key. At any instant, even after a power failure, a key is therefore
 * either absent or complete.
 */
import { randomUUID } from 'node:crypto';
import type { Dirent } from 'node:fs';
import {
  chmod,
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
 * Errors from a filesystem without hard links (some network and FAT mounts), or for a
 * file on a different filesystem.
 */
const NO_LINKS = new Set([
  'EPERM',
  'ENOTSUP',
  'EOPNOTSUPP',
  'ENOSYS',
  'EMLINK',
  'EXDEV',
  // Some mounts report these. If permissions really are missing, the copy that follows
  // fails too.
  'EINVAL',
  'EACCES',
]);
/**
 * Errors from a filesystem that can sync files but not folders (CIFS, s3fs, drvfs and
 * others).
 */
const NO_FOLDER_SYNC = new Set([
  'EINVAL',
  'ENOTSUP',
  'EOPNOTSUPP',
  'ENOSYS',
  'EISDIR',
  'EBADF',
]);
/** Transient errors, which stop for example once space is freed or a mount comes back. */
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
/** Permissions of new files and folders, before the umask is applied. */
const FILE_MODE = 0o666;
const FOLDER_MODE = 0o777;

export interface FileStoreOptions {
  /**
   * The umask for new objects and their folders; if absent, the umask of the process.
   */
  readonly umask?: number | undefined;
}

/**
 * Opens a store in a folder.
 * @param folder created on first use
 */
export function openFileStore(
  folder: string,
  options: FileStoreOptions = {},
): ObjectStore {
  return guardStore(new FileStore(resolve(folder), options));
}

class FileStore implements StoreKind {
  readonly url: string;
  readonly spoolDir: string;
  capabilities?: StoreCapabilities;
  readonly #root: string;
  readonly #umask: number | undefined;
  #isRootShared = false;
  /**
   * The error code received when a folder could not be synced; undefined as long as
   * syncing works.
   */
  #unsyncedFolders: string | undefined;

  constructor(root: string, { umask }: FileStoreOptions) {
    this.#umask = umask;
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
    await this.#share(path, FILE_MODE);
    await syncPath(path);
    await this.#makeDurableFolders(folder);
    const isNew = await this.#linkUnlessTaken(path, target);
    if (isNew) {
      await this.#syncFolder(folder);
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
    await this.#makeDurableFolders(dirname(target));
    await using file = await this.#spool(content, '', signal);
    await this.#share(file.path, FILE_MODE);
    await syncPath(file.path);
    await rename(file.path, target);
    await this.#syncFolder(dirname(target));
  }

  /**
   * Tries a conditional write. Without hard links the condition is ignored, and the
   * last of several writers wins.
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

  weaknesses(): readonly string[] {
    if (this.#unsyncedFolders === undefined) return [];
    return [
      `folders are not synced here (${this.#unsyncedFolders}): a power failure may lose ` +
        'the newest objects, and verify finds them',
    ];
  }

  mapError(what: string, error: unknown): Error {
    return fileError(`${what} in ${this.url}`, error);
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  #pathOf(key: string): string {
    return join(this.#root, key);
  }

  /**
   * Links a file to its key. Without hard links, a copy in the spool is renamed instead:
   * a key identifies its content, so a race only replaces a file with an identical one.
   * @returns false if the key already exists
   */
  async #linkUnlessTaken(from: string, target: string): Promise<boolean> {
    const outcome = await linkOrFail(from, target);
    if (outcome !== 'no links') return outcome === 'linked';
    if ((await statIfPresent(target)) !== undefined) return false;

    await makeFolders(this.spoolDir);
    const name = `${basename(from)}.copy.${randomUUID()}`;
    await using copy = temporaryFile(join(this.spoolDir, name));
    await copyFile(from, copy.path);
    await this.#share(copy.path, FILE_MODE);
    await syncPath(copy.path);
    await rename(copy.path, target);
    return true;
  }

  /**
   * Creates a folder and its parents, and makes the directory entry of each new one
   * durable.
   */
  async #makeDurableFolders(folder: string): Promise<void> {
    const first = await makeFolders(folder);
    await this.#shareRoot();
    if (first === undefined) return;
    let made = folder;
    while (made.length >= first.length) {
      await this.#share(made, FOLDER_MODE);
      await this.#syncFolder(made);
      made = dirname(made);
    }
    await this.#syncFolder(dirname(first));
  }

  /** Gives a new file or folder the permissions that the store's own umask allows. */
  async #share(path: string, mode: number): Promise<void> {
    if (this.#umask === undefined) return;
    // Keep the bits above the permissions, because a folder may pass its group on to new
    // files.
    const facts = await stat(path);
    await chmod(path, (facts.mode & 0o7000) | (mode & ~this.#umask));
  }

  /**
   * Gives the root folder the permissions that the store's umask allows, because the
   * spool may have created it for this user only. Another user's folder is left
   * unchanged.
   */
  async #shareRoot(): Promise<void> {
    if (this.#umask === undefined || this.#isRootShared) return;
    const { uid } = await stat(this.#root);
    if (uid === process.getuid?.()) await this.#share(this.#root, FOLDER_MODE);
    this.#isRootShared = true;
  }

  /**
   * Makes a folder's entries durable. A mount that cannot sync folders can still be used;
   * `doctor` reports it.
   */
  async #syncFolder(folder: string): Promise<void> {
    try {
      await syncPath(folder);
    } catch (error) {
      const code = errorCode(error);
      if (!NO_FOLDER_SYNC.has(code)) throw error;
      this.#unsyncedFolders = code;
    }
  }

  #spool(
    content: Buffer,
    prefix: string,
    signal: AbortSignal,
  ): Promise<TemporaryFile> {
    const path = join(this.spoolDir, `${prefix}bytes.${randomUUID()}`);
    return writeTemporary(path, content, signal);
  }

  /** Lists objects in key order. A folder is sorted as if its name ended in a slash. */
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
    const message = `Cannot ${what}: ${code}; it will be tried again; check the disk`;
    return new RetryableError(message, details);
  }
  const message = `Cannot ${what}: ${code}; check the folder of OBJECT_STORE_URL and its permissions`;
  return new PermanentError(message, details);
}

/** A file that is removed on disposal if it still exists. */
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

async function syncPath(path: string): Promise<void> {
  await using handle = await open(path, 'r');
  await handle.sync();
}
