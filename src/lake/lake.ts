/**
 * The lake, opened: its files of one version on the local disk, and an engine that can read these and
 * nothing else.
 */
import { join } from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';
import { errorCode } from '../core/errors.ts';
import { formatInstant, parseInstant } from '../core/time.ts';
import { confine, openDuckDb } from './duckdb.ts';
import { bringFiles, type LocalFilesOptions } from './local-files.ts';
import { currentLake, type LakeFile, type LakeManifest, type PublishedPartition } from './manifest.ts';
import type { LakeTable } from './ports.ts';
import { scratchFolder } from './scratch.ts';
import { EXACT_SUM, LAKE_TABLES, viewStatement } from './tables.ts';

/** A build may take files away between the manifest's reading and theirs: then its new manifest is read. */
const OPENINGS_MAX = 5;

export interface LakeOptions extends LocalFilesOptions {
  /** What will be asked: tables that it does not name stay empty, and their files are not brought. */
  readonly sql?: string;
  /** Instants, where what is asked looks at no entry outside of them: other months stay away. */
  readonly since?: string | undefined;
  readonly until?: string | undefined;
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
  for (const table of LAKE_TABLES) {
    const paths = filesOf(manifest, table, options).map(({ key }) => join(files.path, key));
    await engine.connection.run(viewStatement(table, paths));
  }
  await engine.connection.run(EXACT_SUM);
  await confine(engine.connection, files.path);
  const owned = stack.move();
  return {
    version: manifest?.version ?? 0,
    manifest,
    connection: engine.connection,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

function filesOf(
  manifest: LakeManifest | undefined,
  table: LakeTable,
  options: LakeOptions,
): readonly LakeFile[] {
  if (options.sql !== undefined && !mayReach(options.sql, table)) return [];
  return (manifest?.partitions ?? [])
    .filter((partition) => partition.table === table && isWithin(partition, options))
    .flatMap((partition) => partition.files);
}

/** By its name, or by functions that put a name together. */
function mayReach(sql: string, table: LakeTable): boolean {
  return sql.toLowerCase().includes(table) || /\bquery(?:_table)?\b/i.test(sql);
}

function isWithin({ month }: PublishedPartition, { since, until }: LakeOptions): boolean {
  if (month === undefined) return true;
  const [first, last] = [monthOf(since), monthOf(until)];
  return (first === undefined || month >= first) && (last === undefined || month <= last);
}

/** What is no instant limits nothing: the statement itself will say what is wrong with it. */
function monthOf(text: string | undefined): string | undefined {
  const instant = text === undefined ? undefined : parseInstant(text);
  return instant === undefined ? undefined : formatInstant(instant).slice(0, 'YYYY-MM'.length);
}

async function bringCurrent(
  options: LakeOptions,
  folder: string,
  signal: AbortSignal,
): Promise<LakeManifest | undefined> {
  for (let opening = 1; ; opening += 1) {
    const manifest = await currentLake(options.objects, signal);
    const files = LAKE_TABLES.flatMap((table) => filesOf(manifest, table, options));
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
