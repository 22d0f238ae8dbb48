/**
 * Writes the partitions of a build, two files at a time. A month's rows come from the objects of its large
 * slices, and the others from the warehouse, which sends them while files are written. The warehouse is
 * right: where an object does not give what was loaded from it, its rows come from there as well.
 */
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { PermanentError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { interruptible, openBuildEngine } from './duckdb.ts';
import type { PublishedPartition } from './manifest.ts';
import { sliceStatement, strayIdsStatement } from './object-rows.ts';
import type { LakeBooks, LakePartition, LakeSlice, LakeSnapshot, SliceLimits } from './ports.ts';
import { oneAhead, rowParts } from './row-parts.ts';
import { scratchFolder } from './scratch.ts';
import { localObject, SLICE_LIMITS } from './slices.ts';
import { parquetStatement } from './tables.ts';
import { partitionPath, PartitionWriter, SPOOL_PREFIX, type Workshop } from './write-partition.ts';

/** Of text on its way into one Parquet file: it is sorted in memory, and bounds the disk that a build needs. */
const PART_BYTES_MAX = 64 * 2 ** 20;

export interface LakeDeps {
  readonly books: LakeBooks;
  readonly objects: ObjectStore;
  /** A folder of this process's own for what DuckDB spills, and for local copies. Made where missing. */
  readonly scratchDir: string;
  /** Which rows are read from objects; as measured to pay where absent. */
  readonly sliceLimits?: SliceLimits;
}

export interface LakeProgress {
  readonly partition: string;
  readonly rows: bigint;
  readonly source: 'object' | 'warehouse';
}

interface Build {
  readonly deps: LakeDeps;
  readonly snapshot: LakeSnapshot;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: LakeProgress) => void;
  /** For copies of objects. */
  readonly folder: string;
  /** Segments whose objects did not give what was loaded from them. */
  readonly distrusted: Set<bigint>;
}

/** @returns what was published, by the partition's path */
export async function writePartitions(
  deps: LakeDeps,
  snapshot: LakeSnapshot,
  partitions: readonly LakePartition[],
  signal: AbortSignal,
  onProgress: (progress: LakeProgress) => void,
): Promise<ReadonlyMap<string, PublishedPartition>> {
  const written = new Map<string, PublishedPartition>();
  if (partitions.length === 0) return written;
  await using scratch = await scratchFolder(deps.scratchDir);
  await using engine = await openBuildEngine(scratch.path);
  const build = { deps, snapshot, onProgress, folder: scratch.path, distrusted: new Set<bigint>() };
  // What is left out was given up for an object that is distrusted from then on: so it ends.
  for (
    let left = partitions;
    left.length > 0;
    left = left.filter((one) => !written.has(partitionPath(one)))
  ) {
    const failing = new AbortController();
    const context = { ...build, signal: AbortSignal.any([signal, failing.signal]) };
    await using writers = new AsyncDisposableStack();
    const parts = oneAhead(partsOf(context, left, writers), discard);
    const working = engine.connections.map(async (connection) => {
      const workshop = { objects: deps.objects, connection, signal: context.signal };
      try {
        await writeParts(context, parts, workshop, written);
      } catch (error) {
        failing.abort(error);
        throw error;
      }
    });
    const outcomes = await Promise.allSettled(working);
    await parts.return(undefined);
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }
  return written;
}

/** The rows of one file, or the end of a partition. */
type Part = { readonly writer: PartitionWriter } & (
  | { readonly kind: 'rows'; readonly place: number; readonly path: string }
  | {
      readonly kind: 'slice';
      readonly place: number;
      readonly slice: LakeSlice;
      readonly coveredPath: string;
    }
  | { readonly kind: 'end' }
);

async function* partsOf(
  build: Build,
  partitions: readonly LakePartition[],
  writers: AsyncDisposableStack,
): AsyncGenerator<Part, undefined> {
  const { deps, snapshot, signal } = build;
  const slices = await slicesByMonth(build, partitions);
  for (const partition of partitions) {
    const writer = writers.use(new PartitionWriter(partition));
    const direct = slices.get(partition.month) ?? [];
    if (direct.length > 0) {
      const coveredPath = await deps.objects.spoolPath(`${SPOOL_PREFIX}${randomUUID()}.covered`);
      writer.own(coveredPath);
      await writeFile(coveredPath, snapshot.covered(partition.month ?? '', signal), { signal });
      for (const slice of direct) {
        yield { writer, kind: 'slice', place: writer.announce(), slice, coveredPath };
      }
    }
    const rest = direct.reduce((rows, slice) => rows - slice.rows, partition.rows);
    if (direct.length === 0 || rest > 0n) {
      for await (const path of spooledRows(build, partition, direct)) {
        yield { writer, kind: 'rows', place: writer.announce(), path };
      }
    }
    writer.end();
    yield { writer, kind: 'end' };
  }
  return undefined;
}

async function slicesByMonth(
  { deps, snapshot, distrusted }: Build,
  partitions: readonly LakePartition[],
): Promise<ReadonlyMap<string | undefined, readonly LakeSlice[]>> {
  const months = partitions.flatMap(({ month }) => (month === undefined ? [] : [month]));
  const slices = await snapshot.slices(months, deps.sliceLimits ?? SLICE_LIMITS);
  return Map.groupBy(
    slices.filter(({ segmentId }) => !distrusted.has(segmentId)),
    ({ month }) => month,
  );
}

function spooledRows(
  { deps, snapshot, signal }: Build,
  partition: LakePartition,
  without: readonly LakeSlice[],
): AsyncGenerator<string, undefined> {
  const segments = without.map(({ segmentId }) => segmentId);
  const nextPath = (): Promise<string> => deps.objects.spoolPath(`${SPOOL_PREFIX}${randomUUID()}.rows`);
  return rowParts(snapshot.rows(partition, segments, signal), nextPath, PART_BYTES_MAX);
}

async function discard(part: Part): Promise<void> {
  if (part.kind === 'rows') await rm(part.path, { force: true });
}

/** Takes parts until none is left; finishes the partitions whose last file it wrote. */
async function writeParts(
  build: Build,
  parts: AsyncGenerator<Part, undefined>,
  workshop: Workshop,
  written: Map<string, PublishedPartition>,
): Promise<void> {
  for (;;) {
    const step = await parts.next();
    if (step.done === true) return;
    const { writer } = step.value;
    await writePart(build, step.value, workshop);
    if (!writer.claim()) continue;
    written.set(partitionPath(writer.partition), await writer.finish(workshop));
    await writer[Symbol.asyncDispose]();
  }
}

async function writePart(build: Build, part: Part, workshop: Workshop): Promise<void> {
  const { writer } = part;
  if (part.kind === 'end') return;
  if (writer.isGivenUp) {
    await discard(part);
    return;
  }
  const rows =
    part.kind === 'slice' ? await writeSlice(build, part, workshop) : await writeRows(part, workshop);
  if (rows === undefined) return;
  const source = part.kind === 'slice' ? 'object' : 'warehouse';
  build.onProgress({ partition: partitionPath(writer.partition), rows, source });
}

async function writeRows(
  part: Part & { readonly kind: 'rows' },
  workshop: Workshop,
): Promise<bigint | undefined> {
  const { writer, place, path } = part;
  try {
    const { table } = writer.partition;
    return await writer.add(place, (parquetPath) => parquetStatement(table, path, parquetPath), workshop);
  } finally {
    await discard(part);
  }
}

/** @returns its rows; undefined where the object is not to be trusted, and the partition was given up */
async function writeSlice(
  { deps, folder, distrusted, signal }: Build,
  { writer, place, slice, coveredPath }: Part & { readonly kind: 'slice' },
  workshop: Workshop,
): Promise<bigint | undefined> {
  try {
    await using object = await localObject(slice, deps.objects, folder, signal);
    const files = { objectPath: object.path, coveredPath };
    const rows = await writer.add(
      place,
      (parquetPath) => sliceStatement(slice, files, parquetPath),
      workshop,
      async (found, parquetPath) => found === slice.rows && !(await hasStrayIds(parquetPath, workshop)),
    );
    if (rows === undefined) distrusted.add(slice.segmentId);
    return rows;
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof PermanentError)) throw error;
    distrusted.add(slice.segmentId);
    writer.giveUp();
    return undefined;
  }
}

async function hasStrayIds(parquetPath: string, { connection, signal }: Workshop): Promise<boolean> {
  const result = await interruptible(connection, 'look at the ids of a slice', signal, () =>
    connection.runAndReadAll(strayIdsStatement(parquetPath)),
  );
  return result.getRows()[0]?.[0] === true;
}
