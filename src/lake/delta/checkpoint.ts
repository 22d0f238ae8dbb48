/**
 * Checkpoints of a Delta log: the table's state as Parquet, which saves readers from
 * replaying all commits. A bad checkpoint makes the table unreadable for everyone, so a
 * checkpoint is written to the spool and read back before it is published, and the hint
 * that points to it is published last.
 */
import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { isDeepStrictEqual } from 'node:util';
import type { DuckDBConnection } from '@duckdb/node-api';
import { z } from 'zod';
import { errorCode, isRetryable, PermanentError } from '../../errors/errors.ts';
import { type LakeAccess, literal } from '../local/duckdb.ts';
import { fetchObject, fileFacts } from '../local/scratch.ts';
import { type Action, parseAction, type TableState } from './actions.ts';
import { checkpointKey, logAmong, logPrefix } from './listing.ts';

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

/**
 * Reads the actions of a checkpoint.
 * @returns undefined if the checkpoint is missing or damaged
 * @throws RetryableError | PermanentError if the store fails
 */
export async function readCheckpoint(
  access: LakeAccess,
  key: string,
): Promise<Action[] | undefined> {
  const { connection, folder, signal } = access;
  const path = join(folder, `${randomUUID()}.checkpoint.parquet`);
  try {
    await fetchObject(access, key, path);
    return await actionsIn(connection, path);
  } catch (error) {
    signal.throwIfAborted();
    const isStoreFault =
      error instanceof PermanentError && errorCode(error) !== 'OBJECT_MISSING';
    if (isStoreFault || isRetryable(error)) throw error;
    return undefined;
  } finally {
    await rm(path, { force: true });
  }
}

async function actionsIn(connection: DuckDBConnection, path: string) {
  const sql = `select cast(to_json(t) as varchar) from read_parquet(${literal(path)}) t`;
  return (await connection.runAndReadAll(sql))
    .getRows()
    .map(([line]) => parseAction(String(line)));
}

/**
 * Publishes the checkpoint of a state, and the hint that points to it. Publishes neither
 * if another writer was faster.
 */
export async function writeCheckpoint(
  access: LakeAccess,
  root: string,
  state: TableState,
): Promise<void> {
  const { objects, connection, folder, signal } = access;
  const { version } = state;
  const lines = linesOf(state);
  const jsonPath = join(folder, `${randomUUID()}.json`);
  const path = await objects.spoolPath(
    `${CHECKPOINT_SPOOL_PREFIX}${randomUUID()}.parquet`,
  );
  try {
    await writeFile(jsonPath, lines.join('\n'));
    await connection.run(`copy (select * from read_json(${literal(jsonPath)}, format = 'newline_delimited',
      maximum_object_size = ${LINE_BYTES_MAX}, columns = ${COLUMNS})) to ${literal(path)} (format parquet, compression snappy)`);
    const plain = (actions: readonly Action[]) =>
      actions.map((action) => JSON.stringify(action)).toSorted();
    if (
      !isDeepStrictEqual(
        plain(await actionsIn(connection, path)),
        plain(lines.map(parseAction)),
      )
    ) {
      throw new PermanentError(
        `Cannot write a checkpoint of ${root}: it does not read back as it was written`,
        { code: 'LAKE_CHECKPOINT_BROKEN', meta: { root, version } },
      );
    }
    const facts = await fileFacts(path, signal);
    await objects.publishFile(
      checkpointKey(root, version),
      path,
      facts,
      signal,
    );
    const counts = {
      size: lines.length,
      sizeInBytes: Number(facts.bytes),
      numOfAddFiles: state.live.size,
    };
    // Readers list the log if there is no hint, so the hint may briefly be absent.
    const hint = Buffer.from(JSON.stringify({ version, ...counts }));
    await objects.remove(hintKey(root), signal);
    await objects.publishBytes(
      hintKey(root),
      hint,
      signal,
      CHECKPOINT_SPOOL_PREFIX,
    );
  } catch (error) {
    if (errorCode(error) !== 'OBJECT_CONFLICT') throw error;
  } finally {
    await rm(jsonPath, { force: true });
    await rm(path, { force: true });
  }
}

function linesOf({
  protocol,
  metaData,
  txns,
  gone,
  live,
}: TableState): readonly string[] {
  const actions: Action[] = [
    { protocol },
    { metaData },
    ...[...txns.values()].map((txn) => ({ txn })),
    ...[...gone.values()].map((remove) => ({
      remove: { ...remove, dataChange: false },
    })),
    ...[...live.values()].map((add) => ({
      add: { ...add, dataChange: false },
    })),
  ];
  return actions.map((action) => JSON.stringify(action));
}

function hintKey(root: string): string {
  return `${logPrefix(root)}_last_checkpoint`;
}

/**
 * Parses a hint.
 * @returns the version that the hint points to; -1 if the hint cannot be read
 */
function versionNamed(hint: string): number {
  try {
    return z.object({ version: z.number() }).parse(JSON.parse(hint)).version;
  } catch {
    return -1;
  }
}

/**
 * Removes the hint if it points to `version` or an earlier one, so that no reader follows
 * it to a removed checkpoint.
 */
export async function removeHint(
  access: LakeAccess,
  root: string,
  version: number,
): Promise<void> {
  const { objects, signal } = access;
  const key = hintKey(root);
  if ((await objects.head(key, signal)) === undefined) return;
  if (versionNamed(await text(await objects.read(key, signal))) <= version)
    await objects.remove(key, signal);
}

/** An object that makes a table unreadable. */
export interface BrokenObject {
  readonly key: string;
  /** What is wrong with the object, as part of a message. */
  readonly state: string;
}

/**
 * Finds objects that make a table unreadable although its commits exist: unreadable
 * checkpoints, and a hint that does not point to a readable one. The hint comes first in
 * the result, so that a caller who removes the objects in this order never leaves a hint
 * to a removed checkpoint.
 * @param after only checkpoints of versions after this one are read
 */
export async function findBrokenCheckpoints(
  access: LakeAccess,
  root: string,
  after = -1,
): Promise<BrokenObject[]> {
  const checkpoints = logAmong(root, access.listed).filter(
    ({ kind }) => kind === 'checkpoint',
  );
  const usable = new Set(checkpoints.map(({ version }) => version));
  const found: BrokenObject[] = [];
  for (const { key, version } of checkpoints) {
    if (version <= after || (await readCheckpoint(access, key)) !== undefined)
      continue;
    usable.delete(version);
    found.push({ key, state: `checkpoint ${version} cannot be read` });
  }
  const key = hintKey(root);
  if (!access.listed.some((object) => object.key === key)) return found;
  const isUsable = usable.has(
    versionNamed(await text(await access.objects.read(key, access.signal))),
  );
  return isUsable
    ? found
    : [
        { key, state: '_last_checkpoint does not name one that can be read' },
        ...found,
      ];
}
