/** Writes one partition of the lake: its files, and the summaries of a month of entries. */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { RetryableError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { type Engine, interruptible } from './duckdb.ts';
import { fileFacts } from './file-facts.ts';
import { LAKE_PREFIX, type LakeFile, type MonthSummaries, type PublishedPartition } from './manifest.ts';
import type { LakePartition } from './ports.ts';
import { SUMMARY_FORM, SUMMARY_TABLES, summaryFile } from './summaries.ts';
import { parquetStatement } from './tables.ts';

/** What a build writes into the spool, and may find there after a crash. */
export const SPOOL_PREFIX = 'lake-';
const NAME_CHARACTERS = 16;

/** Where files are made and where they go. */
export interface Workshop {
  readonly objects: ObjectStore;
  readonly engine: Engine;
  readonly signal: AbortSignal;
}

/** Files are published as they are written: until a manifest names them, they are nobody's. */
export class PartitionWriter implements AsyncDisposable {
  readonly #partition: LakePartition;
  readonly #workshop: Workshop;
  readonly #files: LakeFile[] = [];
  /** Local copies of the files: summaries are made of them. */
  readonly #paths: string[] = [];

  constructor(partition: LakePartition, workshop: Workshop) {
    this.#partition = partition;
    this.#workshop = workshop;
  }

  /** Turns one spooled part into a file. @returns its rows */
  async add(rowsPath: string): Promise<bigint> {
    const path = await newPath(this.#workshop);
    this.#paths.push(path);
    const statement = parquetStatement(this.#partition.table, rowsPath, path);
    const file = await publish(partitionPath(this.#partition), path, statement, this.#workshop);
    this.#files.push(file);
    return file.rows;
  }

  /** @throws RetryableError `LAKE_ROWS_DIFFER` where other rows came than the warehouse counts */
  async finish(): Promise<PublishedPartition> {
    const partition = this.#partition;
    const rows = this.#files.reduce((sum, file) => sum + file.rows, 0n);
    if (rows !== partition.rows) throw rowsDiffer(partition, rows);
    const published = { ...partition, files: this.#files };
    if (partition.table !== 'ledger_entries' || partition.month === undefined) return published;
    return { ...published, summaries: await writeSummaries(partition.month, this.#paths, this.#workshop) };
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
      const statement = summaryFile(table, paths, path);
      files.push({ table, ...(await publish(partitionPath({ table, month }), path, statement, workshop)) });
    } finally {
      await rm(path, { force: true });
    }
  }
  return { form: SUMMARY_FORM, files };
}

/** Runs the statement that writes `path`, and publishes the file below `folder` by its content's name. */
async function publish(
  folder: string,
  path: string,
  statement: string,
  { objects, engine: { connection }, signal }: Workshop,
): Promise<LakeFile> {
  const result = await interruptible(connection, `write ${folder}`, signal, () =>
    connection.runAndReadAll(statement),
  );
  const rows = result.getRows()[0]?.[0];
  const facts = await fileFacts(path, signal);
  const key = `${LAKE_PREFIX}${folder}/${facts.sha256.slice(0, NAME_CHARACTERS)}.parquet`;
  await objects.publishFile(key, path, facts, signal);
  return { key, rows: typeof rows === 'bigint' ? rows : 0n, ...facts };
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
