/**
 * Files of the lake on the local disk. A reader gets copies that are kept for the next one: named by their
 * SHA-256, not writable, and with a time of modification that any later write would change. The builder reads
 * a local store's own files.
 */
import { randomUUID } from 'node:crypto';
import { chmod, mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { undefinedIfMissing } from '../files/byte-counter.ts';
import { PermanentError } from '../errors/errors.ts';
import type { LakeTable } from './tables/columns.ts';
import type { AddFile } from './delta/actions.ts';
import { fileKey } from './delta/listing.ts';
import type { LakeAccess } from './local/duckdb.ts';
import { fetchObject } from './local/scratch.ts';
import { rootOf, SHAPES } from './tables/tables.ts';

const KEPT_FOLDER = 'fetched';
/** Of kept files, over all readers; those not used for the longest go first. */
const KEPT_BYTES_MAX = 10 * 2 ** 30;
/** What was used so lately may be in use. */
const IN_USE_MS = 3_600_000;
const KEPT_MODIFIED = new Date('2000-01-01T00:00:00Z');
const READ_ONLY = 0o400;
const SHA256 = /^[0-9a-f]{64}$/;
const MONTH = /^\d{4}-\d{2}$/;

type FileAccess = Pick<LakeAccess, 'objects' | 'folder' | 'signal'> & {
  /** Below it copies are kept. */
  readonly scratchDir: string;
};

/** A file that a table's log names. */
export interface StoredFile {
  readonly key: string;
  readonly bytes: bigint;
  /** Absent where another writer made it. */
  readonly sha256: string | undefined;
  /** `month=2023-05`, or empty. */
  readonly partition: string;
}

/** @throws PermanentError `LAKE_PATH_REFUSED` */
export function storedFile(
  table: LakeTable,
  { path, size, tags, partitionValues }: AddFile,
): StoredFile {
  const { month = '' } = partitionValues;
  const sha256 = tags?.['sha256'];
  const partition = `month=${MONTH.test(month) ? month : '__HIVE_DEFAULT_PARTITION__'}`;
  return {
    key: fileKey(rootOf(table), path),
    bytes: BigInt(size),
    sha256: sha256 !== undefined && SHA256.test(sha256) ? sha256 : undefined,
    partition: SHAPES[table].isWhole ? '' : partition,
  };
}

/** Where a builder finds the file: in a local store itself, or a kept copy. */
export async function builderPath(
  table: LakeTable,
  add: AddFile,
  access: FileAccess,
): Promise<string> {
  const { url } = access.objects;
  if (url.startsWith('file:'))
    return fileURLToPath(`${url}/${storedFile(table, add).key}`);
  const [path = ''] = await bringFiles(table, [add], access);
  return path;
}

/**
 * Copies of a table's files, in their order; below the reader's own folder where they cannot be kept.
 * @throws PermanentError `LAKE_FILE_CORRUPT` where a file is not what the log says, `OBJECT_MISSING`
 */
export async function bringFiles(
  table: LakeTable,
  adds: readonly AddFile[],
  access: FileAccess,
): Promise<readonly string[]> {
  const kept = join(access.scratchDir, KEPT_FOLDER);
  const paths: string[] = [];
  for (const file of adds.map((add) => storedFile(table, add))) {
    const isKept = file.sha256 !== undefined;
    const parent = join(isKept ? kept : access.folder, file.partition);
    await mkdir(parent, { recursive: true });
    const path = join(parent, `${file.sha256 ?? randomUUID()}.parquet`);
    if (!isKept || !(await isUsable(path, file.bytes))) await bring(access, file, path);
    paths.push(path);
  }
  await trim(kept, KEPT_BYTES_MAX);
  return paths;
}

/** Removes the files that were not used for the longest, until the rest is within the limit. */
export async function trim(
  folder: string,
  bytesMax: number,
  inUseMs = IN_USE_MS,
): Promise<void> {
  const files: { path: string; bytes: number; usedMs: number }[] = [];
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  for (const name of names) {
    const path = join(folder, name);
    const facts = await stat(path).catch(() => undefined);
    if (facts?.isFile() === true)
      files.push({ path, bytes: facts.size, usedMs: facts.atimeMs });
  }
  let bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  const unusedSinceMs = Date.now() - inUseMs;
  for (const file of files.toSorted((a, b) => a.usedMs - b.usedMs)) {
    if (bytes <= bytesMax || file.usedMs > unusedSinceMs) return;
    await rm(file.path, { force: true });
    bytes -= file.bytes;
  }
}

async function isUsable(path: string, bytes: bigint) {
  const facts = await stat(path).catch(undefinedIfMissing);
  if (facts?.mtimeMs !== KEPT_MODIFIED.getTime() || BigInt(facts.size) !== bytes)
    return false;
  return utimes(path, new Date(), KEPT_MODIFIED).then(() => true, undefinedIfMissing);
}

async function bring(access: FileAccess, file: StoredFile, path: string): Promise<void> {
  const partial = `${path}.${randomUUID()}`;
  try {
    const { bytes, sha256 } = await fetchObject(access, file.key, partial);
    if (bytes !== file.bytes || (file.sha256 !== undefined && sha256 !== file.sha256)) {
      throw new PermanentError(
        `Cannot read the lake: ${file.key} is not what its log says; verify`,
        {
          code: 'LAKE_FILE_CORRUPT',
          meta: { key: file.key },
        },
      );
    }
    await chmod(partial, READ_ONLY);
    await utimes(partial, new Date(), KEPT_MODIFIED);
    await rename(partial, path);
  } finally {
    await rm(partial, { force: true });
  }
}
