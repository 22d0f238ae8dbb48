/**
 * Brings the lake up to date with the warehouse: months that changed are written anew, whole; the others
 * stay as they are. So a month is one file or a few large ones however small the nightly loads were, and
 * nothing needs compacting. It is built from the warehouse rather than from the objects because a month is
 * one partition there, already typed, with superseded rows gone; an object may span years.
 */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { RetryableError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { BUILD_MEMORY_LIMIT, type Engine, interruptible, openDuckDb } from './duckdb.ts';
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
import { oneAhead, rowParts } from './row-parts.ts';
import { scratchFolder, sweepScratch } from './scratch.ts';
import { parquetStatement } from './tables.ts';

/** Of text on its way into one Parquet file: it is sorted in memory, and bounds the disk that a build needs. */
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
  const isKept = (partition: LakePartition): boolean =>
    known.get(partitionPath(partition))?.fingerprint === partition.fingerprint;
  const changed = wanted.filter((partition) => !isKept(partition));
  const written = await writePartitions(deps, snapshot, changed, signal, onProgress);
  const partitions = wanted.map((partition) => {
    const path = partitionPath(partition);
    return written.get(path) ?? known.get(path) ?? { ...partition, files: [] };
  });
  return { partitions, rebuilt: changed.length };
}

/** While DuckDB writes one file, Postgres sends the rows of the next. */
async function writePartitions(
  deps: LakeDeps,
  snapshot: LakeSnapshot,
  partitions: readonly LakePartition[],
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void,
): Promise<ReadonlyMap<string, PublishedPartition>> {
  const written = new Map(
    partitions.map((partition) => [partitionPath(partition), { ...partition, files: [] as LakeFile[] }]),
  );
  if (partitions.length === 0) return written;
  await using scratch = await scratchFolder(deps.scratchDir);
  await using engine = await openDuckDb(scratch.path, BUILD_MEMORY_LIMIT);
  const parts = spooledParts(deps.objects, snapshot, partitions, signal);
  for await (const part of oneAhead(parts, ({ path }) => rm(path, { force: true }))) {
    const file = await writeFile(deps.objects, engine, part, signal);
    written.get(partitionPath(part.partition))?.files.push(file);
    onProgress({ partition: partitionPath(part.partition), rows: file.rows });
  }
  for (const partition of written.values()) checkRows(partition);
  return written;
}

interface SpooledPart {
  readonly partition: LakePartition;
  /** Removed by whoever takes it. */
  readonly path: string;
}

async function* spooledParts(
  objects: ObjectStore,
  snapshot: LakeSnapshot,
  partitions: readonly LakePartition[],
  signal: AbortSignal,
): AsyncGenerator<SpooledPart, undefined> {
  const nextPath = (): Promise<string> => objects.spoolPath(`${SPOOL_PREFIX}${randomUUID()}.rows`);
  for (const partition of partitions) {
    for await (const path of rowParts(snapshot.rows(partition, signal), nextPath, PART_BYTES_MAX)) {
      yield { partition, path };
    }
  }
  return undefined;
}

async function writeFile(
  objects: ObjectStore,
  { connection }: Engine,
  { partition, path }: SpooledPart,
  signal: AbortSignal,
): Promise<LakeFile> {
  const parquet = await objects.spoolPath(`${SPOOL_PREFIX}${randomUUID()}.parquet`);
  try {
    const statement = parquetStatement(partition.table, path, parquet);
    const result = await interruptible(connection, `write ${partitionPath(partition)}`, signal, () =>
      connection.runAndReadAll(statement),
    );
    const rows = result.getRows()[0]?.[0];
    const facts = await fileFacts(parquet, signal);
    const key = `${LAKE_PREFIX}${partitionPath(partition)}/${facts.sha256.slice(0, NAME_CHARACTERS)}.parquet`;
    await objects.publishFile(key, parquet, facts, signal);
    return { key, rows: typeof rows === 'bigint' ? rows : 0n, ...facts };
  } finally {
    await rm(parquet, { force: true });
    await rm(path, { force: true });
  }
}

function checkRows(partition: PublishedPartition): void {
  const rows = partition.files.reduce((sum, file) => sum + file.rows, 0n);
  if (rows === partition.rows) return;
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
