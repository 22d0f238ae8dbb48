/**
 * The lake, opened: its files of one version on the local disk, and an engine that can read these and
 * nothing else.
 */
import { join } from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';
import { errorCode } from '../core/errors.ts';
import { confine, openDuckDb } from './duckdb.ts';
import { bringFiles, type LocalFilesOptions } from './local-files.ts';
import { currentLake, type LakeFile, type LakeManifest } from './manifest.ts';
import { isWhole, type MonthRange } from './month-range.ts';
import type { LakeTable } from './ports.ts';
import { scratchFolder } from './scratch.ts';
import { SUMMARIES, SUMMARY_TABLES, type SummaryTable } from './summaries.ts';
import { LAKE_TABLES, TABLES, viewStatement } from './tables.ts';

/** A build may take files away between the manifest's reading and theirs: then its new manifest is read. */
const OPENINGS_MAX = 5;

export interface LakeOptions extends LocalFilesOptions {
  /** What will be asked: tables that it does not name stay empty, and their files are not brought. */
  readonly sql?: string;
  /** Where what is asked takes whole months from their summaries: entries of other months than its rest stay away. */
  readonly range?: MonthRange | undefined;
}

export interface Lake extends AsyncDisposable {
  /** 0 where no lake was built yet: its tables are empty. */
  readonly version: number;
  readonly manifest: LakeManifest | undefined;
  /** Confined to the lake's files. */
  readonly connection: DuckDBConnection;
}

/** @throws PermanentError `LAKE_FILE_CORRUPT` where a fetched file is not what the manifest says */
export async function openLake(options: LakeOptions, signal: AbortSignal): Promise<Lake> {
  await using stack = new AsyncDisposableStack();
  const files = stack.use(await scratchFolder(options.scratchDir));
  const spill = stack.use(await scratchFolder(options.scratchDir));
  const manifest = await bringCurrent(options, files.path, signal);
  const engine = stack.use(await openDuckDb(spill.path));
  for (const table of NAMES) {
    const paths = filesOf(manifest, table, options).map(({ key }) => join(files.path, key));
    const isSummary = isSummaryTable(table);
    const { columns } = isSummary ? SUMMARIES[table] : TABLES[table];
    await engine.connection.run(viewStatement(table, columns, paths, isSummary));
  }
  await confine(engine.connection, files.path);
  const owned = stack.move();
  return {
    version: manifest?.version ?? 0,
    manifest,
    connection: engine.connection,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

type TableName = LakeTable | SummaryTable;
const NAMES: readonly TableName[] = [...LAKE_TABLES, ...SUMMARY_TABLES];

function isSummaryTable(table: TableName): table is SummaryTable {
  return (SUMMARY_TABLES as readonly string[]).includes(table);
}

function filesOf(
  manifest: LakeManifest | undefined,
  table: TableName,
  { sql, range }: LakeOptions,
): readonly LakeFile[] {
  if (sql !== undefined && !mayReach(sql, table)) return [];
  const partitions = manifest?.partitions ?? [];
  if (isSummaryTable(table)) {
    return partitions
      .filter(({ month }) => range === undefined || (month !== undefined && isWhole(month, range)))
      .flatMap(({ summaries }) => (summaries?.files ?? []).filter((file) => file.table === table));
  }
  const isWanted = (month: string | undefined): boolean =>
    month === undefined || range === undefined || range.rest.some((part) => part.month === month);
  return partitions
    .filter((partition) => partition.table === table && isWanted(partition.month))
    .flatMap((partition) => partition.files);
}

/** By its name, or by functions that put a name together. */
function mayReach(sql: string, table: TableName): boolean {
  return sql.toLowerCase().includes(table) || /\bquery(?:_table)?\b/i.test(sql);
}

async function bringCurrent(
  options: LakeOptions,
  folder: string,
  signal: AbortSignal,
): Promise<LakeManifest | undefined> {
  for (let opening = 1; ; opening += 1) {
    const manifest = await currentLake(options.objects, signal);
    const files = NAMES.flatMap((table) => filesOf(manifest, table, options));
    try {
      await bringFiles(files, folder, options, signal);
      return manifest;
    } catch (error) {
      if (opening >= OPENINGS_MAX || !isGone(error)) throw error;
    }
  }
}

function isGone(error: unknown): boolean {
  return errorCode(error) === 'OBJECT_MISSING' || errorCode(error) === 'ENOENT';
}
