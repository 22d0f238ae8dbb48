/**
 * Brings the lake up to date with the warehouse: months that changed are written anew, whole; the others
 * stay as they are. So a month is one file or a few large ones however small the nightly loads were, and
 * nothing needs compacting.
 */
import type { ObjectStore } from '../objects/object-store.ts';
import {
  currentLake,
  encodeLakeManifest,
  filesOfPartition,
  LAKE_PREFIX,
  type LakeManifest,
  lakeManifestKey,
  type PublishedPartition,
} from './manifest.ts';
import type { LakePartition, LakeSnapshot } from './ports.ts';
import { sweepScratch } from './scratch.ts';
import { SUMMARY_FORM } from './summaries.ts';
import { partitionPath, SPOOL_PREFIX } from './write-partition.ts';
import { type LakeDeps, type LakeProgress, writePartitions } from './write-partitions.ts';

export type { LakeDeps, LakeProgress } from './write-partitions.ts';

/** Counts of tables; summaries are not among them. */
export interface LakeBuild {
  readonly version: number;
  readonly rebuilt: number;
  readonly kept: number;
  readonly files: number;
  readonly rows: bigint;
  readonly bytes: bigint;
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
