/** What no version of a table names any more goes when its time is over: files, commits and moments. */
import type { ObjectStore } from '../objects/object-store.ts';
import type { TableState } from './delta/actions.ts';
import { type ListedObject, logAmong } from './delta/listing.ts';
import { checkpointKey, commitKey, fileKey, logPrefix } from './delta/paths.ts';
import { momentsAmong } from './moment.ts';
import type { LakeTable } from './tables/columns.ts';
import { rootOf } from './tables/tables.ts';

export interface RetentionDeps {
  readonly objects: ObjectStore;
  readonly retentionMs: number;
}

/**
 * Nothing that is younger than the retention is removed: a reader of an older version, or another writer,
 * may need it.
 * @param listed the lake's objects, at that state or before
 * @param states of its tables
 * @returns how many objects it removed
 */
export async function removeUnnamed(
  { objects, retentionMs }: RetentionDeps,
  listed: readonly ListedObject[],
  states: ReadonlyMap<LakeTable, TableState>,
  signal: AbortSignal,
): Promise<number> {
  const beforeMs = Date.now() - retentionMs;
  const keys = [...states].flatMap(([table, state]) => [
    ...unnamedFiles(rootOf(table), listed, state, beforeMs),
    ...oldLog(rootOf(table), listed, beforeMs),
  ]);
  const moments = momentsAmong(listed);
  // Until a newer one stood there, a moment was the lake: its time counts from then on.
  const isOver = (index: number): boolean => (moments[index + 1]?.modifiedMs ?? Infinity) < beforeMs;
  keys.push(...moments.filter((_, index) => isOver(index)).map(({ key }) => key));
  for (const key of keys) await objects.remove(key, signal);
  return keys.length;
}

function unnamedFiles(
  root: string,
  listed: readonly ListedObject[],
  { live, gone }: TableState,
  beforeMs: number,
): readonly string[] {
  const named = new Set([...live.keys()].map((path) => fileKey(root, path)));
  for (const { path, deletionTimestamp } of gone.values()) {
    if ((deletionTimestamp ?? 0) >= beforeMs) named.add(fileKey(root, path));
  }
  return listed.flatMap(({ key, modifiedMs }) => {
    const isFile = key.startsWith(`${root}/`) && !key.startsWith(logPrefix(root));
    return isFile && !named.has(key) && modifiedMs < beforeMs ? [key] : [];
  });
}

/** Commits and checkpoints that a later checkpoint, itself old enough, stands for. */
function oldLog(root: string, listed: readonly ListedObject[], beforeMs: number): readonly string[] {
  const { commits, checkpoints, modifiedMs } = logAmong(root, listed);
  const standing = checkpoints.findLast((version) => (modifiedMs.get(version) ?? Infinity) < beforeMs);
  if (standing === undefined) return [];
  return [
    ...commits.filter((version) => version < standing).map((version) => commitKey(root, version)),
    ...checkpoints.filter((version) => version < standing).map((version) => checkpointKey(root, version)),
  ];
}
