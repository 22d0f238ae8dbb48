/**
 * The lake's files on the local disk for one reader. Files of a local store are linked, so that a build
 * meanwhile takes nothing away; those of a remote one are fetched once, and kept for the next reader.
 */
import { createWriteStream } from 'node:fs';
import { copyFile, link, mkdir, readdir, rm, stat, utimes } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { errorCode, PermanentError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { fileFacts } from './file-facts.ts';
import type { LakeFile } from './manifest.ts';

const KEPT_FOLDER = 'fetched';
/** Of fetched files, over all readers; those not used for the longest go first. */
export const KEPT_BYTES_MAX = 10 * 2 ** 30;

export interface LocalFilesOptions {
  readonly objects: ObjectStore;
  readonly scratchDir: string;
}

/** Whether the store's objects are files of this machine. */
export function isLocalStore({ url }: ObjectStore): boolean {
  return url.startsWith('file:');
}

/** Where a local store keeps what has this key. */
export function storedPath({ url }: ObjectStore, key: string): string {
  return fileURLToPath(`${url}/${key}`);
}

/**
 * Puts the files below `folder`, by their keys.
 * @throws PermanentError `LAKE_FILE_CORRUPT` where a fetched file is not what the manifest says, and
 * `OBJECT_MISSING` or ENOENT where a build took it away
 */
export async function bringFiles(
  files: readonly LakeFile[],
  folder: string,
  { objects, scratchDir }: LocalFilesOptions,
  signal: AbortSignal,
): Promise<void> {
  const isLocal = isLocalStore(objects);
  const kept = join(scratchDir, KEPT_FOLDER);
  if (!isLocal) await mkdir(kept, { recursive: true });
  for (const file of files) {
    const path = join(folder, file.key);
    await mkdir(dirname(path), { recursive: true });
    if (isLocal) await linkOrCopy(storedPath(objects, file.key), path);
    else await bringRemote(objects, file, path, join(kept, basename(file.key)), signal);
  }
  if (!isLocal) await trim(kept, KEPT_BYTES_MAX);
}

/** Removes the files that were not used for the longest, until the rest is within the limit. */
export async function trim(folder: string, bytesMax: number): Promise<void> {
  const files: { path: string; bytes: number; usedMs: number }[] = [];
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    const facts = await stat(path).catch(() => undefined);
    if (facts?.isFile() === true) files.push({ path, bytes: facts.size, usedMs: facts.mtimeMs });
  }
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  for (const file of files.toSorted((a, b) => a.usedMs - b.usedMs)) {
    if (bytes <= bytesMax) return;
    await rm(file.path, { force: true });
    bytes -= file.bytes;
  }
}

/** Names say the content, so a kept file of the right size is the file. */
async function bringRemote(
  objects: ObjectStore,
  file: LakeFile,
  path: string,
  keptPath: string,
  signal: AbortSignal,
): Promise<void> {
  if (await linkKept(keptPath, path, file.bytes)) return;
  await pipeline(await objects.read(file.key, signal), createWriteStream(path), { signal });
  const facts = await fileFacts(path, signal);
  if (facts.sha256 !== file.sha256) {
    throw new PermanentError(`Cannot read the lake: ${file.key} is not what its manifest says; verify`, {
      code: 'LAKE_FILE_CORRUPT',
      meta: { key: file.key },
    });
  }
  await linkOrCopy(path, keptPath);
}

/** Linked first and looked at then: another reader may be trimming. */
async function linkKept(keptPath: string, path: string, bytes: bigint): Promise<boolean> {
  try {
    await linkOrCopy(keptPath, path);
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return false;
    throw error;
  }
  if (BigInt((await stat(path)).size) !== bytes) {
    await rm(path);
    await rm(keptPath, { force: true });
    return false;
  }
  const now = new Date();
  await utimes(path, now, now);
  return true;
}

async function linkOrCopy(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return;
    if (errorCode(error) === 'ENOENT') throw error;
    await copyFile(from, to);
  }
}
