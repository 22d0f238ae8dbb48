/**
 * Brings the lake up to date with the warehouse: months that changed are written anew, whole; the others
 * stay as they are. So a month is one file or a few large ones however small the nightly loads were, and
 * nothing needs compacting. It is built from the warehouse rather than from the objects because a month is
 * one partition there, already typed, with superseded rows gone; an object may span years.
 */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import type { DuckDBConnection } from '@duckdb/node-api';
import { RetryableError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { csvParts } from './csv-parts.ts';
import { interruptible, openDuckDb } from './duckdb.ts';
import { fileFacts } from './file-facts.ts';
import {
  currentLake,
  encodeLakeManifest,
  LAKE_PREFIX,
  type LakeFile,
  type LakeManifest,
  lakeManifestKey,
  type PublishedPartition,
} from './manifest.ts';
import type { LakeBooks, LakePartition, LakeSnapshot } from './ports.ts';
import { scratchFolder, sweepScratch } from './scratch.ts';
import { parquetStatement } from './tables.ts';

/** Of CSV on its way into one Parquet file: it is sorted in memory, and bounds the disk that a build needs. */
const PART_BYTES_MAX = 64 * 2 ** 20;
const SPOOL_PREFIX = 'lake-';
const NAME_CHARACTERS = 16;

export interface LakeDeps {
  readonly books: LakeBooks;
  readonly objects: ObjectStore;
  /** A folder of this process's own for what DuckDB spills, and for local copies. Made where missing. */
  readonly scratchDir: string;
}

export interface LakeBuild {
  readonly version: number;
  readonly rebuilt: number;
  readonly kept: number;
  readonly files: number;
  readonly rows: bigint;
  readonly bytes: bigint;
}

export interface LakeProgress {
  readonly partition: string;
  readonly rows: bigint;
}

/**
 * Publishes a lake that holds exactly the warehouse's loaded rows of one moment. Crash-safe: before the
 * new manifest is there, the old lake is whole; files that neither names are removed by the next build.
 * @throws RetryableError | PermanentError; the lake is then what it was
 */
export async function buildLake(
  deps: LakeDeps,
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void = () => undefined,
): Promise<LakeBuild> {
  return deps.books.exclusively(async (snapshot) => {
    await deps.objects.clearSpool(SPOOL_PREFIX, new Set());
    await sweepScratch(deps.scratchDir);
    const before = await currentLake(deps.objects, signal);
    const wanted = await snapshot.partitions();
    const published = await publishPartitions(deps, snapshot, before, wanted, signal, onProgress);
    const isSame = published.rebuilt === 0 && before?.partitions.length === wanted.length;
    const manifest: LakeManifest =
      isSame && before !== undefined
        ? before
        : {
            version: (before?.version ?? 0) + 1,
            builtAt: new Date().toISOString(),
            partitions: published.partitions,
          };
    const key = lakeManifestKey(manifest.version);
    if (manifest !== before) await deps.objects.publishBytes(key, encodeLakeManifest(manifest), signal);
    await removeOthers(deps.objects, manifest, signal);
    return summary(manifest, published.rebuilt);
  }, signal);
}

async function publishPartitions(
  deps: LakeDeps,
  snapshot: LakeSnapshot,
  before: LakeManifest | undefined,
  wanted: readonly LakePartition[],
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void,
): Promise<{ readonly partitions: PublishedPartition[]; readonly rebuilt: number }> {
  const known = new Map(before?.partitions.map((partition) => [partitionPath(partition), partition]));
  await using scratch = await scratchFolder(deps.scratchDir);
  await using engine = await openDuckDb(scratch.path);
  const partitions: PublishedPartition[] = [];
  let rebuilt = 0;
  for (const partition of wanted) {
    const path = partitionPath(partition);
    const same = known.get(path);
    if (same?.fingerprint === partition.fingerprint) {
      partitions.push(same);
      continue;
    }
    const files = await writePartition(deps.objects, engine.connection, snapshot, partition, signal);
    partitions.push({ ...partition, files });
    rebuilt += 1;
    onProgress({ partition: path, rows: partition.rows });
  }
  return { partitions, rebuilt };
}

async function writePartition(
  objects: ObjectStore,
  connection: DuckDBConnection,
  snapshot: LakeSnapshot,
  partition: LakePartition,
  signal: AbortSignal,
): Promise<LakeFile[]> {
  const files: LakeFile[] = [];
  const nextPath = (): Promise<string> => objects.spoolPath(`${SPOOL_PREFIX}${randomUUID()}.csv`);
  for await (const csv of csvParts(snapshot.rows(partition, signal), nextPath, PART_BYTES_MAX)) {
    const parquet = await objects.spoolPath(`${SPOOL_PREFIX}${randomUUID()}.parquet`);
    try {
      const statement = parquetStatement(partition.table, csv, parquet);
      const result = await interruptible(connection, `write ${partitionPath(partition)}`, signal, () =>
        connection.runAndReadAll(statement),
      );
      const rows = result.getRows()[0]?.[0];
      const facts = await fileFacts(parquet, signal);
      const key = `${LAKE_PREFIX}${partitionPath(partition)}/${facts.sha256.slice(0, NAME_CHARACTERS)}.parquet`;
      await objects.publishFile(key, parquet, facts, signal);
      files.push({ key, rows: typeof rows === 'bigint' ? rows : 0n, ...facts });
    } finally {
      await rm(parquet, { force: true });
    }
  }
  const rows = files.reduce((sum, file) => sum + file.rows, 0n);
  if (rows === partition.rows) return files;
  throw new RetryableError(
    `Cannot write ${partitionPath(partition)}: ${rows} rows were written, the warehouse counts ${partition.rows}; verify the warehouse`,
    { code: 'LAKE_ROWS_DIFFER', meta: { rows: rows.toString(), counted: partition.rows.toString() } },
  );
}

/** Old versions and what a crash left. Readers that still open an old version find it gone and start again. */
async function removeOthers(
  objects: ObjectStore,
  manifest: LakeManifest,
  signal: AbortSignal,
): Promise<void> {
  const named = new Set(manifest.partitions.flatMap((partition) => partition.files.map((file) => file.key)));
  named.add(lakeManifestKey(manifest.version));
  const others: string[] = [];
  for await (const { key } of objects.list(LAKE_PREFIX, signal)) {
    if (!named.has(key)) others.push(key);
  }
  for (const key of others) await objects.remove(key, signal);
}

/** `ledger_entries/month=2023-05`, as engines that list folders expect it. */
export function partitionPath(partition: Pick<PublishedPartition, 'table' | 'month'>): string {
  return partition.month === undefined ? partition.table : `${partition.table}/month=${partition.month}`;
}

function summary(manifest: LakeManifest, rebuilt: number): LakeBuild {
  const files = manifest.partitions.flatMap((partition) => partition.files);
  return {
    version: manifest.version,
    rebuilt,
    kept: manifest.partitions.length - rebuilt,
    files: files.length,
    rows: files.reduce((sum, file) => sum + file.rows, 0n),
    bytes: files.reduce((sum, file) => sum + file.bytes, 0n),
  };
}
