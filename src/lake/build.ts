/**
 * Brings the lake up to date with the warehouse: months that changed are written anew, whole; the others
 * stay as they are. So a month is one file or a few large ones however small the nightly loads were, and
 * nothing needs compacting. It is built from the warehouse rather than from the objects because a month is
 * one partition there, already typed, with superseded rows gone; an object may span years.
 */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import type { ObjectStore } from '../objects/object-store.ts';
import { BUILD_MEMORY_LIMIT, openDuckDb } from './duckdb.ts';
import {
  currentLake,
  encodeLakeManifest,
  filesOfPartition,
  LAKE_PREFIX,
  type LakeManifest,
  lakeManifestKey,
  type PublishedPartition,
} from './manifest.ts';
import type { LakeBooks, LakePartition, LakeSnapshot } from './ports.ts';
import { oneAhead, rowParts } from './row-parts.ts';
import { scratchFolder, sweepScratch } from './scratch.ts';
import { SUMMARY_FORM } from './summaries.ts';
import { partitionPath, PartitionWriter, SPOOL_PREFIX } from './write-partition.ts';

/** Of text on its way into one Parquet file: it is sorted in memory, and bounds the disk that a build needs. */
const PART_BYTES_MAX = 64 * 2 ** 20;

export interface LakeDeps {
  readonly books: LakeBooks;
  readonly objects: ObjectStore;
  /** A folder of this process's own for what DuckDB spills, and for local copies. Made where missing. */
  readonly scratchDir: string;
}

/** Counts of tables; summaries are not among them. */
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
    isUpToDate(known.get(partitionPath(partition)), partition);
  const changed = wanted.filter((partition) => !isKept(partition));
  const written = await writePartitions(deps, snapshot, changed, signal, onProgress);
  const partitions = wanted.map((partition) => {
    const path = partitionPath(partition);
    return written.get(path) ?? known.get(path) ?? { ...partition, files: [] };
  });
  return { partitions, rebuilt: changed.length };
}

function isUpToDate(
  published: PublishedPartition | undefined,
  { table, fingerprint }: LakePartition,
): boolean {
  if (published?.fingerprint !== fingerprint) return false;
  return table !== 'ledger_entries' || published.summaries?.form === SUMMARY_FORM;
}

/** While DuckDB writes one file, Postgres sends the rows of the next. */
async function writePartitions(
  deps: LakeDeps,
  snapshot: LakeSnapshot,
  partitions: readonly LakePartition[],
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void,
): Promise<ReadonlyMap<string, PublishedPartition>> {
  const written = new Map<string, PublishedPartition>();
  if (partitions.length === 0) return written;
  await using scratch = await scratchFolder(deps.scratchDir);
  await using engine = await openDuckDb(scratch.path, BUILD_MEMORY_LIMIT);
  const parts = spooledParts(deps.objects, snapshot, partitions, signal);
  await using stack = new AsyncDisposableStack();
  const workshop = { objects: deps.objects, engine, signal };
  let writer: PartitionWriter | undefined;
  for await (const { partition, path } of oneAhead(parts, discard)) {
    writer ??= stack.use(new PartitionWriter(partition, workshop));
    const folder = partitionPath(partition);
    if (path === undefined) {
      written.set(folder, await writer.finish());
      await writer[Symbol.asyncDispose]();
      writer = undefined;
      continue;
    }
    try {
      onProgress({ partition: folder, rows: await writer.add(path) });
    } finally {
      await rm(path, { force: true });
    }
  }
  return written;
}

interface SpooledPart {
  readonly partition: LakePartition;
  /** Removed by whoever takes it; undefined: the partition ends. */
  readonly path: string | undefined;
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
    yield { partition, path: undefined };
  }
  return undefined;
}

async function discard({ path }: SpooledPart): Promise<void> {
  if (path !== undefined) await rm(path, { force: true });
}

/** Old versions and what a crash left. Readers that still open an old version find it gone and start again. */
async function removeOthers(
  objects: ObjectStore,
  manifest: LakeManifest,
  signal: AbortSignal,
): Promise<void> {
  const named = new Set(manifest.partitions.flatMap(filesOfPartition).map((file) => file.key));
  named.add(lakeManifestKey(manifest.version));
  const others: string[] = [];
  for await (const { key } of objects.list(LAKE_PREFIX, signal)) {
    if (!named.has(key)) others.push(key);
  }
  for (const key of others) await objects.remove(key, signal);
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
