/**
 * Checkpoints of a Delta log: the table's state as Parquet, so that readers need not replay all commits. A bad
 * one makes the table unreadable for everybody, so it is written aside and read back before it is published,
 * and the hint that names it comes last.
 */
import { randomUUID } from 'node:crypto';
import { rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { DuckDBConnection } from '@duckdb/node-api';
import { z } from 'zod';
import { errorCode, isRetryable, PermanentError } from '../../core/errors.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { Engine } from '../local/duckdb.ts';
import { fetchObject, fileFacts } from '../local/file-facts.ts';
import { literal } from '../local/sql.ts';
import { type Action, parseAction, type TableState } from './actions.ts';
import type { LogListing } from './listing.ts';
import { checkpointKey, hintKey } from './paths.ts';

const CHECKPOINT_SPOOL_PREFIX = 'lake-checkpoint-';
const MAP = 'MAP(VARCHAR, VARCHAR)';
const COLUMNS = `{
  protocol: 'STRUCT(minReaderVersion INTEGER, minWriterVersion INTEGER)',
  metaData: 'STRUCT(id VARCHAR, name VARCHAR, description VARCHAR, format STRUCT(provider VARCHAR, options ${MAP}),
    schemaString VARCHAR, partitionColumns VARCHAR[], configuration ${MAP}, createdTime BIGINT)',
  txn: 'STRUCT(appId VARCHAR, version BIGINT, lastUpdated BIGINT)',
  add: 'STRUCT(path VARCHAR, partitionValues ${MAP}, size BIGINT, modificationTime BIGINT, dataChange BOOLEAN,
    stats VARCHAR, tags ${MAP})',
  remove: 'STRUCT(path VARCHAR, deletionTimestamp BIGINT, dataChange BOOLEAN, extendedFileMetadata BOOLEAN,
    partitionValues ${MAP}, size BIGINT)'}`;
const LINE_BYTES_MAX = 16 * 2 ** 20;

/** Its actions; undefined where it is not there or cannot be read. */
export async function readCheckpoint(
  objects: ObjectStore,
  root: string,
  version: number,
  { connection, folder }: Engine,
  signal: AbortSignal,
): Promise<readonly Action[] | undefined> {
  const path = join(folder, `${randomUUID()}.checkpoint.parquet`);
  try {
    await fetchObject(objects, checkpointKey(root, version), path, signal);
    return await actionsIn(connection, path);
  } catch (error) {
    signal.throwIfAborted();
    const isOfStore = error instanceof PermanentError && errorCode(error) !== 'OBJECT_MISSING';
    if (isOfStore || isRetryable(error)) throw error;
    return undefined;
  } finally {
    await rm(path, { force: true });
  }
}

async function actionsIn(connection: DuckDBConnection, path: string): Promise<readonly Action[]> {
  const result = await connection.runAndReadAll(
    `select cast(to_json(t) as varchar) from read_parquet(${literal(path)}) t`,
  );
  return result.getRows().map(([line]) => parseAction(String(line)));
}

/** Writes the checkpoint of a state and the hint to it. @returns whether it is new */
export async function writeCheckpoint(
  objects: ObjectStore,
  root: string,
  state: TableState,
  { connection, folder }: Engine,
  signal: AbortSignal,
): Promise<boolean> {
  const lines = linesOf(state);
  const [jsonPath, path] = [
    join(folder, `${randomUUID()}.json`),
    await objects.spoolPath(`${CHECKPOINT_SPOOL_PREFIX}${randomUUID()}.parquet`),
  ];
  try {
    await writeFile(jsonPath, lines.join('\n'));
    await connection.run(`copy (select * from read_json(${literal(jsonPath)}, format = 'newline_delimited',
      maximum_object_size = ${LINE_BYTES_MAX}, columns = ${COLUMNS})) to ${literal(path)} (format parquet, compression snappy)`);
    const back = await actionsIn(connection, path);
    if (!isSame(back, lines)) {
      throw new PermanentError(
        `Cannot write a checkpoint of ${root}: it does not read back as it was written`,
        {
          code: 'LAKE_CHECKPOINT_BROKEN',
          meta: { root, version: state.version },
        },
      );
    }
    try {
      await objects.publishFile(
        checkpointKey(root, state.version),
        path,
        await fileFacts(path, signal),
        signal,
      );
    } catch (error) {
      if (errorCode(error) === 'OBJECT_CONFLICT') return false;
      throw error;
    }
    const { size } = await stat(path);
    const hint = {
      version: state.version,
      size: lines.length,
      sizeInBytes: size,
      numOfAddFiles: state.live.size,
    };
    await writeHint(objects, root, hint, signal);
    return true;
  } finally {
    await rm(jsonPath, { force: true });
    await rm(path, { force: true });
  }
}

function linesOf({ protocol, metaData, txns, gone, live }: TableState): readonly string[] {
  const { minReaderVersion, minWriterVersion } = protocol;
  const actions: Action[] = [
    { protocol: { minReaderVersion, minWriterVersion } },
    { metaData },
    ...[...txns.values()].map((txn) => ({ txn })),
    ...[...gone.values()].map((remove) => ({ remove: { ...remove, dataChange: false } })),
    ...[...live.values()].map((add) => ({ add: { ...add, dataChange: false } })),
  ];
  return actions.map((action) => JSON.stringify(action));
}

/** Every action once, whatever its order; what is absent on one side is null on the other. */
function isSame(back: readonly Action[], lines: readonly string[]): boolean {
  const plain = (action: Action): string => JSON.stringify(action, sortedWithoutNull);
  const written = lines.map((line) => plain(parseAction(line))).toSorted();
  const found = back.map(plain).toSorted();
  return written.length === found.length && written.every((line, index) => line === found[index]);
}

function sortedWithoutNull(_key: string, value: unknown): unknown {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  const entries = Object.entries(value).filter(([, field]) => field !== null && field !== undefined);
  return Object.fromEntries(entries.toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Without a hint readers list the log, so there may be none for a moment. */
async function writeHint(
  objects: ObjectStore,
  root: string,
  hint: Readonly<Record<string, number>>,
  signal: AbortSignal,
): Promise<void> {
  const key = hintKey(root);
  await objects.remove(key, signal);
  await objects.publishBytes(key, Buffer.from(JSON.stringify(hint)), signal, CHECKPOINT_SPOOL_PREFIX);
}

const hintShape = z.object({ version: z.number().int() });

/** The version that the hint names; -1 where it says nothing readable. */
async function readHint(objects: ObjectStore, root: string, signal: AbortSignal): Promise<number> {
  const content = await text(await objects.read(hintKey(root), signal));
  try {
    return hintShape.parse(JSON.parse(content)).version;
  } catch {
    return -1;
  }
}

/** What is wrong with a log's checkpoints: those that cannot be read, and a hint that names none. */
export interface CheckpointFaults {
  readonly unreadable: readonly number[];
  readonly isHintWrong: boolean;
}

/** @param unreadable of its checkpoints, by who has read them */
export async function checkHint(
  objects: ObjectStore,
  { root, checkpoints, hasHint }: LogListing,
  unreadable: readonly number[],
  signal: AbortSignal,
): Promise<CheckpointFaults> {
  const hint = hasHint ? await readHint(objects, root, signal) : undefined;
  const isHintWrong = hint !== undefined && (!checkpoints.includes(hint) || unreadable.includes(hint));
  return { unreadable, isHintWrong };
}

/** Reads all of them. */
export async function checkCheckpoints(
  objects: ObjectStore,
  log: LogListing,
  engine: Engine,
  signal: AbortSignal,
): Promise<CheckpointFaults> {
  const unreadable: number[] = [];
  for (const version of log.checkpoints) {
    if ((await readCheckpoint(objects, log.root, version, engine, signal)) === undefined)
      unreadable.push(version);
  }
  return checkHint(objects, log, unreadable, signal);
}

/** Takes away what makes a table unreadable although its commits are there. */
export async function mendCheckpoints(
  objects: ObjectStore,
  root: string,
  { unreadable, isHintWrong }: CheckpointFaults,
  signal: AbortSignal,
): Promise<void> {
  if (isHintWrong) await objects.remove(hintKey(root), signal);
  for (const version of unreadable) await objects.remove(checkpointKey(root, version), signal);
}
