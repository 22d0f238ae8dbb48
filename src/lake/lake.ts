/**
 * The lake, opened: its files of one version on the local disk, and an engine that can read these and
 * nothing else. Files of a local store are linked, so that a build meanwhile takes nothing away; those of
 * a remote one are fetched.
 */
import { createWriteStream } from 'node:fs';
import { copyFile, link, mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import type { DuckDBConnection } from '@duckdb/node-api';
import { errorCode, PermanentError } from '../core/errors.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import { confine, openDuckDb } from './duckdb.ts';
import { fileFacts } from './file-facts.ts';
import { currentLake, LAKE_PREFIX, type LakeFile, type LakeManifest } from './manifest.ts';
import { scratchFolder } from './scratch.ts';
import { EXACT_SUM, LAKE_TABLES, viewStatement } from './tables.ts';

/** A build may take files away between the manifest's reading and theirs: then its new manifest is read. */
const OPENINGS_MAX = 5;

export interface LakeOptions {
  readonly objects: ObjectStore;
  readonly scratchDir: string;
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
  const manifest = await fetchCurrent(options.objects, files.path, signal);
  const engine = stack.use(await openDuckDb(spill.path));
  for (const table of LAKE_TABLES) {
    const paths = filesOf(manifest)
      .filter(({ key }) => key.startsWith(`${LAKE_PREFIX}${table}/`))
      .map(({ key }) => join(files.path, key));
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

function filesOf(manifest: LakeManifest | undefined): readonly LakeFile[] {
  return manifest?.partitions.flatMap((partition) => partition.files) ?? [];
}

async function fetchCurrent(
  objects: ObjectStore,
  folder: string,
  signal: AbortSignal,
): Promise<LakeManifest | undefined> {
  for (let opening = 1; ; opening += 1) {
    const manifest = await currentLake(objects, signal);
    try {
      for (const file of filesOf(manifest)) await bring(objects, file, join(folder, file.key), signal);
      return manifest;
    } catch (error) {
      if (opening >= OPENINGS_MAX || !isGone(error)) throw error;
    }
  }
}

function isGone(error: unknown): boolean {
  return errorCode(error) === 'OBJECT_MISSING' || errorCode(error) === 'ENOENT';
}

async function bring(objects: ObjectStore, file: LakeFile, path: string, signal: AbortSignal): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  if (objects.url.startsWith('file:')) return linkOrCopy(fileURLToPath(`${objects.url}/${file.key}`), path);
  await pipeline(await objects.read(file.key, signal), createWriteStream(path), { signal });
  const facts = await fileFacts(path, signal);
  if (facts.sha256 === file.sha256) return;
  throw new PermanentError(`Cannot read the lake: ${file.key} is not what its manifest says; verify`, {
    code: 'LAKE_FILE_CORRUPT',
    meta: { key: file.key },
  });
}

async function linkOrCopy(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return;
    if (errorCode(error) === 'ENOENT') throw error;
    await copyFile(from, to);
  }
}
