/** What no version of a table names any more goes when its time is over: files, commits and moments. */
import { type Micros, nowMicros } from '../core/time.ts';
import type { ListedObject, ObjectStore } from '../objects/object-store.ts';
import type { TableState } from './delta/actions.ts';
import { checkpointKey, commitKey, fileKey, logAmong, logPrefix } from './delta/listing.ts';
import { momentsAmong } from './moment.ts';
import type { LakeTable } from './tables/columns.ts';
import { rootOf } from './tables/tables.ts';

export interface RetentionDeps {
  readonly objects: ObjectStore;
  readonly retentionMs: number;
  /** The lake's objects, at that state or before. */
  readonly listed: readonly ListedObject[];
  readonly signal: AbortSignal;
}

/**
 * Nothing that is younger than the retention is removed: a reader of an older version, or another writer,
 * may need it.
 * @param states of its tables
 * @returns how many objects it removed
 */
export async function removeUnnamed(
  { objects, retentionMs, listed, signal }: RetentionDeps,
  states: ReadonlyMap<LakeTable, TableState>,
): Promise<number> {
  const before = nowMicros() - BigInt(retentionMs) * 1000n;
  const keys = [...states].flatMap(([table, state]) => [
    ...unnamedFiles(rootOf(table), listed, state, before),
    ...oldLog(rootOf(table), listed, before),
  ]);
  const moments = momentsAmong(listed);
  // Until a newer one stood there, a moment was the lake: its time counts from then on.
  const isOver = (index: number): boolean => (moments[index + 1]?.modifiedAt ?? before) < before;
  keys.push(...moments.filter((_, index) => isOver(index)).map(({ key }) => key));
  for (const key of keys) await objects.remove(key, signal);
  return keys.length;
}

function unnamedFiles(
  root: string,
  listed: readonly ListedObject[],
  { live, gone }: TableState,
  before: Micros,
): readonly string[] {
  const named = new Set([...live.keys()].map((path) => fileKey(root, path)));
  for (const { path, deletionTimestamp } of gone.values()) {
    if (BigInt(Math.trunc(deletionTimestamp ?? 0)) * 1000n >= before) named.add(fileKey(root, path));
  }
  return listed.flatMap(({ key, modifiedAt }) => {
    const isFile = key.startsWith(`${root}/`) && !key.startsWith(logPrefix(root));
    return isFile && !named.has(key) && modifiedAt < before ? [key] : [];
  });
}

/** Commits and checkpoints that a later checkpoint, itself old enough, stands for. */
function oldLog(root: string, listed: readonly ListedObject[], before: Micros): readonly string[] {
  const { commits, checkpoints, modifiedAt } = logAmong(root, listed);
  const standing = checkpoints.findLast((version) => (modifiedAt.get(version) ?? before) < before);
  if (standing === undefined) return [];
  return [
    ...commits.filter((version) => version < standing).map((version) => commitKey(root, version)),
    ...checkpoints.filter((version) => version < standing).map((version) => checkpointKey(root, version)),
  ];
}
