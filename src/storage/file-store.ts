/**
 * Objects in a folder. A file is written whole into `.spool`, made durable, then linked to its key: a
 * key is absent or whole at every instant, also after a power cut.
 */
import { randomUUID } from 'node:crypto';
import { createReadStream, type Dirent } from 'node:fs';
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
import { pathToFileURL } from 'node:url';
import { errorCode, PermanentError, RetryableError } from '../errors/errors.ts';
import {
  undefinedIfMissing,
  contentFacts,
  type FileFacts,
  measureStream,
} from '../files/byte-counter.ts';
import { makeFolders } from '../files/folders.ts';
import type { ListedObject, ObjectStore, Outcome } from './object-store.ts';
import { openStore } from './guarded-store.ts';

const SPOOL_FOLDER = '.spool';
/** Hard links do not exist (some network and FAT mounts), or the file lies on another filesystem. */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK', 'EXDEV']);
/** Retryable: space may be freed, a mount may return. */
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
const READ_BYTES = 2 ** 20;

/** @param folder made on first use */
export function openFileStore(folder: string): ObjectStore {
  const root = resolve(folder);
  const url = pathToFileURL(root).href;
  const spoolDir = join(root, SPOOL_FOLDER);

  const spool = (content: Buffer, prefix: string, signal: AbortSignal) =>
    writeTemporary(join(spoolDir, `${prefix}bytes.${randomUUID()}`), content, signal);

  async function putFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<Outcome> {
    signal.throwIfAborted();
    const target = join(root, key);
    await syncPath(path);
    await makeDurableFolders(dirname(target));
    const isNew = await linkUnlessTaken(path, target, spoolDir);
    if (isNew) await syncPath(dirname(target));
    return isNew || (await holds(target, facts, signal)) ? 'written' : 'present';
  }

  /** Of several writers without hard links, the last one wins. */
  async function tryLink(key: string, content: Buffer, signal: AbortSignal) {
    await using file = await spool(content, 'probe.', signal);
    return (await linkOrFail(file.path, join(root, key))) === 'taken'
      ? 'honoured'
      : 'ignored';
  }

  /** In the order of their keys: a folder sorts with its slash. */
  async function* listFolder(
    folder: string,
    prefix: string,
    signal: AbortSignal,
  ): AsyncGenerator<ListedObject> {
    signal.throwIfAborted();
    const entries =
      (await readdir(join(root, folder), { withFileTypes: true }).catch(
        undefinedIfMissing,
      )) ?? [];
    const nameOf = (entry: Dirent) =>
      folder + entry.name + (entry.isDirectory() ? '/' : '');
    for (const entry of entries.toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1))) {
      const key = nameOf(entry);
      if (
        entry.name === SPOOL_FOLDER ||
        !(key.startsWith(prefix) || prefix.startsWith(key))
      )
        continue;
      if (entry.isDirectory()) yield* listFolder(key, prefix, signal);
      const facts =
        entry.isFile() &&
        (await stat(join(root, key), { bigint: true }).catch(undefinedIfMissing));
      if (facts) yield { key, bytes: facts.size, modifiedAt: facts.mtimeNs / 1000n };
    }
  }

  return openStore({
    url,
    spoolDir,
    putFile,
    async putBytes(key, content, signal, spoolPrefix = '') {
      await using file = await spool(content, spoolPrefix, signal);
      return await putFile(key, file.path, contentFacts(content), signal);
    },
    tryPut: tryLink,
    tryInParts: tryLink,
    async head(key) {
      const facts = await stat(join(root, key), { bigint: true }).catch(
        undefinedIfMissing,
      );
      return facts?.isFile() === true
        ? { bytes: facts.size, sha256: undefined }
        : undefined;
    },
    async read(key, signal, range) {
      const file = await open(join(root, key), 'r').catch(undefinedIfMissing);
      const limits =
        range === undefined
          ? {}
          : { start: Number(range.start), end: Number(range.end) - 1 };
      return (
        file &&
        createReadStream('', { fd: file, signal, highWaterMark: READ_BYTES, ...limits })
      );
    },
    list: (prefix, signal) =>
      listFolder(prefix.slice(0, prefix.lastIndexOf('/') + 1), prefix, signal),
    async remove(key, signal) {
      signal.throwIfAborted();
      await unlink(join(root, key)).catch(undefinedIfMissing);
    },
    abortUploads: async () => 0,
    mapError: (what, error) => fileError(`${what} in ${url}`, error),
    [Symbol.asyncDispose]: async () => undefined,
  });
}

/** What the local disk says. */
export function fileError(what: string, error: unknown): Error {
  if (error instanceof PermanentError || error instanceof RetryableError) return error;
  if (error instanceof Error && error.name === 'AbortError') return error;
  const code = errorCode(error);
  const details = { code: `OBJECT_STORE_${code}`, cause: error };
  return RETRYABLE.has(code)
    ? new RetryableError(
        `Cannot ${what}: ${code}; it is tried again, check the disk`,
        details,
      )
    : new PermanentError(
        `Cannot ${what}: ${code}; check the folder and its rights`,
        details,
      );
}

/**
 * Without links, a copy in the spool is renamed. The key names its content, so a race replaces it by itself.
 * @returns false where something lies there
 */
async function linkUnlessTaken(
  from: string,
  target: string,
  spoolDir: string,
): Promise<boolean> {
  const how = await linkOrFail(from, target);
  if (how !== 'no links') return how === 'linked';
  if ((await stat(target).catch(undefinedIfMissing)) !== undefined) return false;
  await makeFolders(spoolDir);
  await using copy = temporary(join(spoolDir, `${basename(from)}.copy.${randomUUID()}`));
  await copyFile(from, copy.path);
  await syncPath(copy.path);
  await rename(copy.path, target);
  return true;
}

async function writeTemporary(path: string, content: Buffer, signal: AbortSignal) {
  const file = temporary(path);
  await makeFolders(dirname(path));
  await writeFile(path, content, { flag: 'wx', signal }).catch(async (error: unknown) => {
    await file[Symbol.asyncDispose]();
    throw error;
  });
  return file;
}

/** Unlinked when it is disposed of, where it is still there. */
function temporary(path: string) {
  return { path, [Symbol.asyncDispose]: () => unlink(path).catch(undefinedIfMissing) };
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

async function holds(
  target: string,
  facts: FileFacts,
  signal: AbortSignal,
): Promise<boolean> {
  const found = await measureStream(
    createReadStream(target, { signal, highWaterMark: READ_BYTES }),
  );
  return found.sha256 === facts.sha256;
}

/** Makes a folder with its parents, and makes each new one durable. */
async function makeDurableFolders(folder: string): Promise<void> {
  const first = await makeFolders(folder);
  if (first === undefined) return;
  for (let made = folder; made.length >= first.length; made = dirname(made))
    await syncPath(made);
  await syncPath(dirname(first));
}

async function syncPath(path: string): Promise<void> {
  await using handle = await open(path, 'r');
  await handle.sync();
}
