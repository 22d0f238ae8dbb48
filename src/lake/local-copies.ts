/**
 * Files of the lake on the local disk. A reader works on copies, which are cached for
 * later readers. A cached copy is read-only, named by its SHA-256, and has a fixed
 * modification time, so that any later write to it is detected. The builder reads the
 * files of a local store in place.
 */
import { randomUUID } from 'node:crypto';
import {
  chmod,
  mkdir,
  readdir,
  rename,
  rm,
  stat,
  utimes,
} from 'node:fs/promises';
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
/**
 * Maximum total size of all cached copies. The least recently used copies are removed
 * first.
 */
const KEPT_BYTES_MAX = 10 * 2 ** 30;
/** A copy that was used this recently may still be open in a reader. */
const IN_USE_MS = 3_600_000;
const KEPT_MODIFIED = new Date('2000-01-01T00:00:00Z');
const READ_ONLY = 0o400;
const SHA256 = /^[0-9a-f]{64}$/;
const MONTH = /^\d{4}-\d{2}$/;

type FileAccess = Pick<LakeAccess, 'objects' | 'folder' | 'signal'> & {
  /** The parent of the folder of cached copies. */
  readonly scratchDir: string;
};

/** A file listed in a table's log. */
export interface StoredFile {
  readonly key: string;
  readonly bytes: bigint;
  /** The file's SHA-256; undefined if the file is from another writer. */
  readonly sha256: string | undefined;
  /** The partition, as `month=2023-05`; empty for a table without partitions. */
  readonly partition: string;
}

/**
 * Describes a file in the store.
 * @throws PermanentError `LAKE_PATH_REFUSED` if its path in the log is outside the table
 */
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

/**
 * Returns the path at which a builder reads the file: in the local store itself, or a
 * cached copy if the store is remote.
 */
export async function builderPath(
  table: LakeTable,
  add: AddFile,
  access: FileAccess,
): Promise<string> {
  const { url } = access.objects;
  if (url.startsWith('file:'))
    return fileURLToPath(`${url}/${storedFile(table, add).key}`);
  const [path = ''] = await fetchFiles(table, [add], access);
  return path;
}

/**
 * Copies a table's files to the local disk. A file without a known SHA-256 cannot be
 * cached; its copy goes into the reader's own folder and is removed with it.
 * @returns the paths, in the order of `adds`
 * @throws PermanentError `LAKE_FILE_CORRUPT` if a file does not match the log,
 *   `OBJECT_MISSING`
 */
export async function fetchFiles(
  table: LakeTable,
  adds: readonly AddFile[],
  access: FileAccess,
): Promise<readonly string[]> {
  const keptFolder = join(access.scratchDir, KEPT_FOLDER);
  const paths: string[] = [];
  for (const file of adds.map((add) => storedFile(table, add))) {
    const canBeKept = file.sha256 !== undefined;
    const parent = join(canBeKept ? keptFolder : access.folder, file.partition);
    await mkdir(parent, { recursive: true });
    const path = join(parent, `${file.sha256 ?? randomUUID()}.parquet`);
    const isThere = canBeKept && (await isUsable(path, file.bytes));
    if (!isThere) await fetchFile(access, file, path);
    paths.push(path);
  }
  await trim(keptFolder, KEPT_BYTES_MAX);
  return paths;
}

interface KeptFile {
  readonly path: string;
  readonly bytes: number;
  readonly usedMs: number;
}

/**
 * Removes the least recently used files until the rest fit within the limit. Files that
 * may be in use stay.
 */
export async function trim(
  folder: string,
  bytesMax: number,
  inUseMs = IN_USE_MS,
): Promise<void> {
  const files: KeptFile[] = [];
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

/**
 * Whether a cached copy exists and is unchanged. If so, its access time is set to now.
 */
async function isUsable(path: string, bytes: bigint): Promise<boolean> {
  const facts = await stat(path).catch(undefinedIfMissing);
  const isUnchanged =
    facts?.mtimeMs === KEPT_MODIFIED.getTime() && BigInt(facts.size) === bytes;
  if (!isUnchanged) return false;
  // Another process may remove the file at this very moment.
  const touched = await utimes(path, new Date(), KEPT_MODIFIED).then(
    () => true,
    undefinedIfMissing,
  );
  return touched ?? false;
}

async function fetchFile(
  access: FileAccess,
  file: StoredFile,
  path: string,
): Promise<void> {
  const partial = `${path}.${randomUUID()}`;
  try {
    const { bytes, sha256 } = await fetchObject(access, file.key, partial);
    const hasSameSum = file.sha256 === undefined || sha256 === file.sha256;
    if (bytes !== file.bytes || !hasSameSum) {
      throw new PermanentError(
        `Cannot read the lake: ${file.key} is not what its log says; run verify`,
        { code: 'LAKE_FILE_CORRUPT', meta: { key: file.key } },
      );
    }
    await chmod(partial, READ_ONLY);
    await utimes(partial, new Date(), KEPT_MODIFIED);
    await rename(partial, path);
  } finally {
    await rm(partial, { force: true });
  }
}
