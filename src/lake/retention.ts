/** What no version of a table names any more goes when its time is over: files, commits and moments. */
import { type Micros, nowMicros } from '../time/time.ts';
import type { ListedObject } from '../storage/object-store.ts';
import type { TableStates, BuildSession } from './build/build-session.ts';
import type { TableState } from './delta/actions.ts';
import { readCheckpoint, removeHint } from './delta/checkpoint.ts';
import { fileKey, logAmong, type LogObject, logPrefix } from './delta/listing.ts';
import { snapshotsAmong } from './snapshot.ts';
import { rootOf } from './tables/tables.ts';

/**
 * Nothing that is younger than the retention is removed: a reader of an older version, or another writer,
 * may need it.
 * @param states of its tables, at what was listed or later
 * @returns how many objects it removed
 */
export async function removeUnnamed(
  shop: BuildSession,
  states: TableStates,
): Promise<number> {
  const { objects, retentionMs, listed, signal } = shop;
  const before = nowMicros() - BigInt(retentionMs) * 1000n;
  const isOver = (at: Micros): boolean => at < before;
  const unnamedFiles = (
    root: string,
    { live, gone }: TableState,
  ): readonly ListedObject[] => {
    const kept = [...gone.values()].filter(
      ({ deletionTimestamp = 0 }) =>
        !isOver(BigInt(Math.trunc(deletionTimestamp)) * 1000n),
    );
    const named = new Set(
      [...live.values(), ...kept].map(({ path }) => fileKey(root, path)),
    );
    const isFile = (key: string): boolean =>
      key.startsWith(`${root}/`) && !key.startsWith(logPrefix(root));
    return listed.filter(
      ({ key, modifiedAt }) => isFile(key) && !named.has(key) && isOver(modifiedAt),
    );
  };
  /** Commits and checkpoints that a later checkpoint, itself old enough, stands for; not one that cannot be read. */
  const oldLog = async (
    root: string,
    { checkpoint }: TableState,
  ): Promise<readonly LogObject[]> => {
    const log = logAmong(root, listed);
    const standing = log.findLast(
      ({ kind, version, modifiedAt }) =>
        kind === 'checkpoint' && version <= checkpoint && isOver(modifiedAt),
    );
    const old = log.filter(({ version }) => version < (standing?.version ?? 0));
    if (standing === undefined || old.length === 0 || standing.version === checkpoint)
      return old;
    // The state was read from a later one, which is too young: this one may have been damaged since.
    return (await readCheckpoint(shop, standing.key)) === undefined ? [] : old;
  };
  const logs: ListedObject[] = [];
  for (const [table, state] of states) {
    const old = await oldLog(rootOf(table), state);
    const checkpoint = old.findLast(({ kind }) => kind === 'checkpoint');
    // A killed build may have written a later checkpoint and not the hint to it.
    if (checkpoint !== undefined)
      await removeHint(shop, rootOf(table), checkpoint.version);
    logs.push(...old);
  }
  const moments = snapshotsAmong(listed);
  const unnamed = [
    ...[...states].flatMap(([table, state]) => unnamedFiles(rootOf(table), state)),
    ...logs,
    // Until a newer one stood there, a moment was the lake: its time counts from then on.
    ...moments.filter((_, index) => isOver(moments[index + 1]?.modifiedAt ?? before)),
  ];
  for (const { key } of unnamed) await objects.remove(key, signal);
  return unnamed.length;
}
