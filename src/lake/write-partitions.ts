/**
 * Writes the partitions of a build, two files at a time. A month's rows come from the objects of its large
 * slices, and the others from the warehouse, which sends them while files are written. The warehouse is
 * right: where an object does not give what was loaded from it, its rows come from there as well.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PermanentError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { interruptible, openBuildEngine } from './duckdb.ts';
import type { PublishedPartition } from './manifest.ts';
import { objectStatement, strayIdsStatement, writtenFile } from './object-rows.ts';
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

/** Slices of one segment: its object is read once for all of them. */
interface ObjectPart {
  readonly kind: 'object';
  readonly targets: readonly [Target, ...Target[]];
  /** Removed by whoever takes it. */
  readonly coveredPath: string;
}

interface Target {
  readonly writer: PartitionWriter;
  readonly place: number;
  readonly slice: LakeSlice;
}

interface RowsPart {
  readonly kind: 'rows';
  readonly writer: PartitionWriter;
  readonly place: number;
  /** Removed by whoever takes it. */
  readonly path: string;
}

/** What one of the two writes at a time, or the end of a partition. */
type Part = ObjectPart | RowsPart | { readonly kind: 'end'; readonly writer: PartitionWriter };

async function* partsOf(
  build: Build,
  partitions: readonly LakePartition[],
  writers: AsyncDisposableStack,
): AsyncGenerator<Part, undefined> {
  const all = partitions.map((partition) => writers.use(new PartitionWriter(partition)));
  const slices = await slicesOf(build, partitions);
  const byMonth = Map.groupBy(slices, ({ month }) => month);
  const bySegment = Map.groupBy(slices, ({ segmentId }) => segmentId);
  for (const writer of all) {
    const { partition } = writer;
    const own = (partition.month === undefined ? undefined : byMonth.get(partition.month)) ?? [];
    for (const { segmentId } of own) {
      const together = bySegment.get(segmentId) ?? [];
      bySegment.delete(segmentId);
      const [first, ...others] = together.flatMap((slice) => targetsOf(all, slice));
      if (first !== undefined) yield await objectPart(build, [first, ...others]);
    }
    const rest = own.reduce((rows, slice) => rows - slice.rows, partition.rows);
    if (own.length === 0 || rest > 0n) {
      for await (const path of spooledRows(build, partition, own)) {
        yield { kind: 'rows', writer, place: writer.announce(), path };
      }
    }
    writer.end();
    yield { kind: 'end', writer };
  }
  return undefined;
}

/** In the order of their months. */
async function slicesOf(
  { deps, snapshot, distrusted }: Build,
  partitions: readonly LakePartition[],
): Promise<readonly LakeSlice[]> {
  const months = partitions.flatMap(({ month }) => (month === undefined ? [] : [month]));
  const slices = await snapshot.slices(months, deps.sliceLimits ?? SLICE_LIMITS);
  return slices.filter(({ segmentId }) => !distrusted.has(segmentId));
}

function targetsOf(writers: readonly PartitionWriter[], slice: LakeSlice): readonly Target[] {
  return writers
    .filter(({ partition: { month } }) => month === slice.month)
    .map((writer) => ({ writer, place: writer.announce(), slice }));
}

async function objectPart(
  { deps, snapshot, signal }: Build,
  targets: ObjectPart['targets'],
): Promise<ObjectPart> {
  const months = targets.map(({ slice }) => slice.month);
  const coveredPath = await deps.objects.spoolPath(`${SPOOL_PREFIX}${randomUUID()}.covered`);
  const covered = snapshot.covered(months[0] ?? '', months.at(-1) ?? '', signal);
  await writeFile(coveredPath, covered, { signal });
  return { kind: 'object', targets, coveredPath };
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
  if (part.kind === 'object') await rm(part.coveredPath, { force: true });
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
    for (const writer of await writePart(build, step.value, workshop)) {
      if (!writer.claim()) continue;
      written.set(partitionPath(writer.partition), await writer.finish(workshop));
      await writer[Symbol.asyncDispose]();
    }
  }
}

/** @returns the partitions that may be whole now */
async function writePart(build: Build, part: Part, workshop: Workshop): Promise<readonly PartitionWriter[]> {
  try {
    if (part.kind === 'object') return await writeObject(build, part, workshop);
    const { writer } = part;
    if (part.kind === 'end' || writer.isGivenUp) return [writer];
    const { partition } = writer;
    const statement = (path: string): string => parquetStatement(partition.table, part.path, path);
    const rows = await writer.add(part.place, statement, workshop);
    build.onProgress({ partition: partitionPath(partition), rows, source: 'warehouse' });
    return [writer];
  } finally {
    await discard(part);
  }
}

/** Where the object is not to be trusted, its partitions are given up. */
async function writeObject(
  build: Build,
  { targets, coveredPath }: ObjectPart,
  workshop: Workshop,
): Promise<readonly PartitionWriter[]> {
  const writers = targets.map(({ writer }) => writer);
  const files = await provenFiles(build, { targets, coveredPath }, workshop);
  if (files === undefined) {
    build.distrusted.add(targets[0].slice.segmentId);
    for (const writer of writers) writer.giveUp();
    return writers;
  }
  for (const { writer, place, slice } of targets) {
    const file = files.get(slice.month);
    if (file === undefined) continue;
    await writer.take(place, file, workshop);
    const partition = partitionPath(writer.partition);
    build.onProgress({ partition, rows: slice.rows, source: 'object' });
  }
  return writers;
}

/** The object's files by month; undefined where they are not what was loaded from it. */
async function provenFiles(
  { deps, folder, signal }: Build,
  { targets, coveredPath }: Pick<ObjectPart, 'targets' | 'coveredPath'>,
  workshop: Workshop,
): Promise<ReadonlyMap<string, { readonly path: string; readonly rows: bigint }> | undefined> {
  const [{ slice: first }, ...others] = targets;
  const slices: [LakeSlice, ...LakeSlice[]] = [first, ...others.map(({ slice }) => slice)];
  const filesPath = join(folder, randomUUID());
  try {
    await mkdir(filesPath);
    await using object = await localObject(first, deps.objects, folder, signal);
    const statement = objectStatement(slices, {
      object: object.path,
      covered: coveredPath,
      files: filesPath,
    });
    const result = await interruptible(workshop.connection, `read ${first.objectKey}`, signal, () =>
      workshop.connection.runAndReadAll(statement),
    );
    const files = new Map(
      result
        .getRows()
        .map(writtenFile)
        .map((file) => [file.month, file]),
    );
    for (const { month, rows } of slices) {
      const file = files.get(month);
      if (file?.rows !== rows || (await hasStrayIds(file.path, workshop))) return undefined;
    }
    return files;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof PermanentError) return undefined;
    throw error;
  }
}

async function hasStrayIds(parquetPath: string, { connection, signal }: Workshop): Promise<boolean> {
  const result = await interruptible(connection, 'look at the ids of a slice', signal, () =>
    connection.runAndReadAll(strayIdsStatement(parquetPath)),
  );
  return result.getRows()[0]?.[0] === true;
}
