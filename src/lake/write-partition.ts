/** Writes one partition of the lake: its files, and the summaries of a month of entries. */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { RetryableError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { DuckDBConnection } from '@duckdb/node-api';
import { interruptible } from './duckdb.ts';
import { fileFacts } from './file-facts.ts';
import { LAKE_PREFIX, type LakeFile, type MonthSummaries, type PublishedPartition } from './manifest.ts';
import type { LakePartition } from './ports.ts';
import { SUMMARY_FORM, SUMMARY_TABLES, summaryFile } from './summaries.ts';

/** What a build writes into the spool, and may find there after a crash. */
export const SPOOL_PREFIX = 'lake-';
const NAME_CHARACTERS = 16;

/** Where files are made and where they go. */
export interface Workshop {
  readonly objects: ObjectStore;
  readonly connection: DuckDBConnection;
  readonly signal: AbortSignal;
}

/**
 * Files are published as they are written: until a manifest names them, they are nobody's. Several of them
 * may be written at once, each in a workshop of its own.
 */
export class PartitionWriter implements AsyncDisposable {
  readonly partition: LakePartition;
  /** In the order in which they were announced. */
  readonly #files: LakeFile[] = [];
  /** Local copies of the files: summaries are made of them. */
  readonly #paths = new Set<string>();
  #announced = 0;
  #written = 0;
  #state: 'open' | 'ended' | 'finished' | 'given up' = 'open';

  constructor(partition: LakePartition) {
    this.partition = partition;
  }

  /** To be called before a file's rows are handed to whoever calls `add`. @returns the file's place */
  announce(): number {
    this.#announced += 1;
    return this.#announced - 1;
  }

  /** Nothing will be announced any more. */
  end(): void {
    if (this.#state === 'open') this.#state = 'ended';
  }

  /** Its files are not what they should be: it will not be finished. */
  giveUp(): void {
    this.#state = 'given up';
  }

  get isGivenUp(): boolean {
    return this.#state === 'given up';
  }

  /** True once, to the first who asks when every announced file is written: who then has to finish it. */
  claim(): boolean {
    if (this.#state !== 'ended' || this.#written !== this.#announced) return false;
    this.#state = 'finished';
    return true;
  }

  /**
   * Writes one file.
   * @param place where `announce` put it
   * @param statement makes it at a path
   * @returns its rows
   */
  async add(place: number, statement: (parquetPath: string) => string, workshop: Workshop): Promise<bigint> {
    const path = await newPath(workshop);
    this.#paths.add(path);
    const rows = await write(partitionPath(this.partition), statement(path), workshop);
    await this.take(place, { path, rows }, workshop);
    return rows;
  }

  /** Publishes a file that was written elsewhere, and takes care of its local copy from then on. */
  async take(
    place: number,
    { path, rows }: { readonly path: string; readonly rows: bigint },
    workshop: Workshop,
  ): Promise<void> {
    this.#paths.add(path);
    this.#files[place] = await publish(partitionPath(this.partition), path, rows, workshop);
    this.#written += 1;
  }

  /**
   * Sums up what was written. For who claimed it.
   * @throws RetryableError `LAKE_ROWS_DIFFER` where other rows came than the warehouse counts
   */
  async finish(workshop: Workshop): Promise<PublishedPartition> {
    const { partition } = this;
    const rows = this.#files.reduce((sum, file) => sum + file.rows, 0n);
    if (rows !== partition.rows) throw rowsDiffer(partition, rows);
    const published = { ...partition, files: this.#files };
    if (partition.table !== 'ledger_entries' || partition.month === undefined) return published;
    return { ...published, summaries: await writeSummaries(partition.month, [...this.#paths], workshop) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const path of this.#paths) await rm(path, { force: true });
  }
}

/** Publishes every summary of one month's entries, which lie in the files `paths`. */
export async function writeSummaries(
  month: string,
  paths: readonly string[],
  workshop: Workshop,
): Promise<MonthSummaries> {
  const files = [];
  for (const table of SUMMARY_TABLES) {
    const path = await newPath(workshop);
    try {
      const folder = partitionPath({ table, month });
      const rows = await write(folder, summaryFile(table, paths, path), workshop);
      files.push({ table, ...(await publish(folder, path, rows, workshop)) });
    } finally {
      await rm(path, { force: true });
    }
  }
  return { form: SUMMARY_FORM, files };
}

/** Runs the statement that writes a file of `folder`. @returns its rows */
async function write(folder: string, statement: string, { connection, signal }: Workshop): Promise<bigint> {
  const result = await interruptible(connection, `write ${folder}`, signal, () =>
    connection.runAndReadAll(statement),
  );
  const rows = result.getRows()[0]?.[0];
  return typeof rows === 'bigint' ? rows : 0n;
}

/** Publishes the file below `folder` by its content's name. */
async function publish(
  folder: string,
  path: string,
  rows: bigint,
  { objects, signal }: Workshop,
): Promise<LakeFile> {
  const facts = await fileFacts(path, signal);
  const key = `${LAKE_PREFIX}${folder}/${facts.sha256.slice(0, NAME_CHARACTERS)}.parquet`;
  await objects.publishFile(key, path, facts, signal);
  return { key, rows, ...facts };
}

function newPath({ objects }: Workshop): Promise<string> {
  return objects.spoolPath(`${SPOOL_PREFIX}${randomUUID()}.parquet`);
}

/** `ledger_entries/month=2023-05`, as engines that list folders expect it. */
export function partitionPath({
  table,
  month,
}: {
  readonly table: string;
  readonly month?: string | undefined;
}): string {
  return month === undefined ? table : `${table}/month=${month}`;
}

function rowsDiffer(partition: LakePartition, rows: bigint): RetryableError {
  return new RetryableError(
    `Cannot write ${partitionPath(partition)}: ${rows} rows were written, the warehouse counts ${partition.rows}; verify the warehouse`,
    { code: 'LAKE_ROWS_DIFFER', meta: { rows: rows.toString(), counted: partition.rows.toString() } },
  );
}
