/**
 * Objects in a folder. A file is written whole into `.spool`, made durable, then linked to its key: a
 * key is absent or whole at every instant, also after a power cut.
 */
import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { copyFile, link, open, readdir, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { errorCode, PermanentError, RetryableError } from '../core/errors.ts';
import { absent, factsOf, type FileFacts, measure } from '../core/byte-sums.ts';
import { makeFolders } from '../core/folders.ts';
import type { ListedObject, ObjectStore } from './object-store.ts';
import { openStore, type Outcome } from './store.ts';

const SPOOL_FOLDER = '.spool';
/** Hard links do not exist (some network and FAT mounts), or the file lies on another filesystem. */
const NO_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK', 'EXDEV']);
/** Retryable: space may be freed, a mount may return. */
const RETRYABLE = new Set(['ENOSPC', 'EDQUOT', 'EIO', 'EMFILE', 'ENFILE', 'EBUSY', 'ESTALE', 'ETIMEDOUT']);
const READ_BYTES = 2 ** 20;

/** @param folder made on first use */
export function openFileStore(folder: string): ObjectStore {
  const root = resolve(folder);
  const url = pathToFileURL(root).href;
  const spoolDir = join(root, SPOOL_FOLDER);

  async function withSpooled<Result>(
    prefix: string,
    content: Buffer,
    signal: AbortSignal,
    use: (path: string) => Promise<Result>,
  ) {
    const path = join(spoolDir, `${prefix}bytes.${randomUUID()}`);
    await makeFolders(spoolDir);
    try {
      await writeFile(path, content, { flag: 'wx', signal });
      return await use(path);
    } finally {
      await unlink(path).catch(absent);
    }
  }

  async function putFile(key: string, path: string, facts: FileFacts, signal: AbortSignal): Promise<Outcome> {
    signal.throwIfAborted();
    const target = join(root, key);
    await syncPath(path);
    await makeDurableFolders(dirname(target));
    const isNew = await linkUnlessTaken(path, target, spoolDir);
    if (isNew) await syncPath(dirname(target));
    return isNew || (await holds(target, facts, signal)) ? 'written' : 'present';
  }

  /** Of several writers without hard links, the last one wins. */
  const tryLink = (key: string, content: Buffer, signal: AbortSignal) =>
    withSpooled('probe.', content, signal, async (path) => {
      const how = await linkOrFail(path, join(root, key));
      return how === 'taken' ? 'honoured' : 'ignored';
    });

  return openStore({
    url,
    spoolDir,
    putFile,
    putBytes: (key, content, signal, spoolPrefix = '') =>
      withSpooled(spoolPrefix, content, signal, (path) => putFile(key, path, factsOf(content), signal)),
    tryPut: tryLink,
    tryInParts: tryLink,
    async head(key) {
      const facts = await stat(join(root, key), { bigint: true }).catch(absent);
      return facts?.isFile() === true ? { bytes: facts.size, sha256: undefined } : undefined;
    },
    async read(key, signal, range) {
      const file = await open(join(root, key), 'r').catch(absent);
      const limits = range === undefined ? {} : { start: Number(range.start), end: Number(range.end) - 1 };
      return file && createReadStream('', { fd: file, signal, highWaterMark: READ_BYTES, ...limits });
    },
    list: (prefix, signal) => listFolder(root, prefix.slice(0, prefix.lastIndexOf('/') + 1), prefix, signal),
    async remove(key, signal) {
      signal.throwIfAborted();
      await unlink(join(root, key)).catch(absent);
    },
    abortUploads: async () => 0,
    mapError(what, error) {
      if (error instanceof PermanentError || error instanceof RetryableError) return error;
      if (error instanceof Error && error.name === 'AbortError') return error;
      const code = errorCode(error);
      const message = `Cannot ${what} in ${url}: ${code}`;
      const details = { code: `OBJECT_STORE_${code}`, cause: error };
      return RETRYABLE.has(code)
        ? new RetryableError(`${message}; it is tried again, check the disk`, details)
        : new PermanentError(`${message}; check the folder and its rights`, details);
    },
    [Symbol.asyncDispose]: async () => undefined,
  });
}

/** In the order of their keys: a folder sorts with its slash. */
async function* listFolder(
  root: string,
  folder: string,
  prefix: string,
  signal: AbortSignal,
): AsyncGenerator<ListedObject> {
  signal.throwIfAborted();
  const entries = (await readdir(join(root, folder), { withFileTypes: true }).catch(absent)) ?? [];
  const named = entries.map((entry) => ({
    entry,
    key: folder + entry.name + (entry.isDirectory() ? '/' : ''),
  }));
  for (const { entry, key } of named.toSorted((a, b) => (a.key < b.key ? -1 : 1))) {
    if (entry.name === SPOOL_FOLDER || !(key.startsWith(prefix) || prefix.startsWith(key))) continue;
    if (entry.isDirectory()) yield* listFolder(root, key, prefix, signal);
    else if (entry.isFile()) {
      const facts = await stat(join(root, key), { bigint: true }).catch(absent);
      if (facts !== undefined) yield { key, bytes: facts.size, modifiedAt: facts.mtimeNs / 1000n };
    }
  }
}

/**
 * Without links, a copy in the spool is renamed. The key names its content, so a race replaces it by itself.
 * @returns false where something lies there
 */
async function linkUnlessTaken(from: string, target: string, spoolDir: string): Promise<boolean> {
  const how = await linkOrFail(from, target);
  if (how !== 'no links') return how === 'linked';
  if ((await stat(target).catch(absent)) !== undefined) return false;
  const copy = join(spoolDir, `${basename(from)}.copy.${randomUUID()}`);
  await makeFolders(spoolDir);
  try {
    await copyFile(from, copy);
    await syncPath(copy);
    await rename(copy, target);
  } finally {
    await unlink(copy).catch(absent);
  }
  return true;
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

async function holds(target: string, facts: FileFacts, signal: AbortSignal): Promise<boolean> {
  const { size } = await stat(target, { bigint: true });
  if (size !== facts.bytes) return false;
  const found = await measure(createReadStream(target, { signal, highWaterMark: READ_BYTES }));
  return found.sha256 === facts.sha256;
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
