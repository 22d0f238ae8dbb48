/** What no version of a table names any more goes when its time is over: files, commits and moments. */
import type { ObjectStore } from '../objects/object-store.ts';
import { LAKE_TABLES } from './tables/columns.ts';
import type { TableState } from './delta/actions.ts';
import type { CheckpointReader } from './delta/checkpoint.ts';
import { listLog, readTable } from './delta/log.ts';
import { checkpointKey, commitKey, fileKey, logPrefix } from './delta/paths.ts';
import { listMoments } from './moment.ts';
import { rootOf } from './tables/tables.ts';

export interface RetentionDeps {
  readonly objects: ObjectStore;
  readonly retentionMs: number;
}

/**
 * Nothing that is younger than the retention is removed: a reader of an older version, or another writer,
 * may need it.
 * @returns how many objects it removed
 */
export async function removeUnnamed(
  { objects, retentionMs }: RetentionDeps,
  reader: CheckpointReader,
  signal: AbortSignal,
): Promise<number> {
  const beforeMs = Date.now() - retentionMs;
  const keys: string[] = [];
  for (const table of LAKE_TABLES) {
    const root = rootOf(table);
    const state = await readTable(objects, root, reader, signal);
    if (state === undefined) continue;
    keys.push(...(await unnamedFiles(objects, root, state, beforeMs, signal)));
    keys.push(...(await oldLog(objects, root, beforeMs, signal)));
  }
  const moments = await listMoments(objects, signal);
  // Until a newer one stood there, a moment was the lake: its time counts from then on.
  const isOver = (index: number): boolean => (moments[index + 1]?.modifiedMs ?? Infinity) < beforeMs;
  keys.push(...moments.filter((_, index) => isOver(index)).map(({ key }) => key));
  for (const key of keys) await objects.remove(key, signal);
  return keys.length;
}

async function unnamedFiles(
  objects: ObjectStore,
  root: string,
  { live, gone }: TableState,
  beforeMs: number,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const named = new Set([...live.keys()].map((path) => fileKey(root, path)));
  for (const { path, deletionTimestamp } of gone.values()) {
    if ((deletionTimestamp ?? 0) >= beforeMs) named.add(fileKey(root, path));
  }
  const keys: string[] = [];
  for await (const { key, modifiedAt } of objects.list(`${root}/`, signal)) {
    if (key.startsWith(logPrefix(root)) || named.has(key)) continue;
    if (Number(modifiedAt / 1000n) < beforeMs) keys.push(key);
  }
  return keys;
}

/** Commits and checkpoints that a later checkpoint, itself old enough, stands for. */
async function oldLog(
  objects: ObjectStore,
  root: string,
  beforeMs: number,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { commits, checkpoints, modifiedMs } = await listLog(objects, root, signal);
  const standing = checkpoints.findLast((version) => (modifiedMs.get(version) ?? Infinity) < beforeMs);
  if (standing === undefined) return [];
  return [
    ...commits.filter((version) => version < standing).map((version) => commitKey(root, version)),
    ...checkpoints.filter((version) => version < standing).map((version) => checkpointKey(root, version)),
  ];
}
