/**
 * Removes files, log entries and snapshots that no version of a table refers to any more,
 * once their retention has expired.
 */
import { type Micros, nowMicros } from '../time/time.ts';
import type { ListedObject } from '../storage/object-store.ts';
import type { TableStates, BuildSession } from './build/build-session.ts';
import type { TableState } from './delta/actions.ts';
import { readCheckpoint, removeHint } from './delta/checkpoint.ts';
import {
  fileKey,
  logAmong,
  type LogObject,
  logPrefix,
} from './delta/listing.ts';
import { snapshotsAmong } from './snapshot.ts';
import { rootOf } from './tables/tables.ts';

const MICROS_PER_MS = 1000n;

/**
 * Removes unreferenced objects that are past the retention period. Newer ones stay,
 * because a reader of an older version, or another writer, may still need them.
 * @param states the tables' states, read no earlier than the session's listing
 * @returns the number of objects removed
 */
export async function removeUnnamed(
  session: BuildSession,
  states: TableStates,
): Promise<number> {
  const { objects, retentionMs, listed, signal } = session;
  const expiredBefore = nowMicros() - BigInt(retentionMs) * MICROS_PER_MS;
  const expired: ListedObject[] = [];
  for (const [table, state] of states) {
    const root = rootOf(table);
    expired.push(...findUnnamedFiles(root, state, listed, expiredBefore));
    const log = await findExpiredLog(session, root, state, expiredBefore);
    const checkpoint = log.findLast(({ kind }) => kind === 'checkpoint');
    // A killed build may have written a later checkpoint without moving the hint to it,
    // so the hint may still point to a checkpoint that is removed below.
    if (checkpoint !== undefined)
      await removeHint(session, root, checkpoint.version);
    expired.push(...log);
  }
  expired.push(...findExpiredSnapshots(listed, expiredBefore));
  for (const { key } of expired) await objects.remove(key, signal);
  return expired.length;
}

/** Finds files of the table that neither a live entry nor a recent removal refers to. */
function findUnnamedFiles(
  root: string,
  { live, gone }: TableState,
  listed: readonly ListedObject[],
  expiredBefore: Micros,
): readonly ListedObject[] {
  const named = new Set<string>();
  for (const { path } of live.values()) named.add(fileKey(root, path));
  for (const { path, deletionTimestamp = 0 } of gone.values()) {
    const removedAt = BigInt(Math.trunc(deletionTimestamp)) * MICROS_PER_MS;
    if (removedAt >= expiredBefore) named.add(fileKey(root, path));
  }
  return listed.filter(({ key, modifiedAt }) => {
    const isFile =
      key.startsWith(`${root}/`) && !key.startsWith(logPrefix(root));
    return isFile && !named.has(key) && modifiedAt < expiredBefore;
  });
}

/**
 * Finds the commits and checkpoints that are superseded by the newest checkpoint older
 * than the retention period. Returns nothing if that checkpoint cannot be read.
 */
async function findExpiredLog(
  session: BuildSession,
  root: string,
  { checkpoint }: TableState,
  expiredBefore: Micros,
): Promise<readonly LogObject[]> {
  const log = logAmong(root, session.listed);
  const replacement = log.findLast(
    ({ kind, version, modifiedAt }) =>
      kind === 'checkpoint' &&
      version <= checkpoint &&
      modifiedAt < expiredBefore,
  );
  if (replacement === undefined) return [];
  const older = log.filter(({ version }) => version < replacement.version);
  const wasRead = replacement.version === checkpoint;
  if (older.length === 0 || wasRead) return older;
  // Nobody has read this checkpoint yet, because the table's state came from a later one.
  // It may be damaged, so read it before the log that it replaces is removed.
  const actions = await readCheckpoint(session, replacement.key);
  return actions === undefined ? [] : older;
}

/**
 * Finds the snapshots whose retention has expired. A snapshot was in use until the next
 * one was published, so its retention starts then.
 */
function findExpiredSnapshots(
  listed: readonly ListedObject[],
  expiredBefore: Micros,
): readonly ListedObject[] {
  const snapshots = snapshotsAmong(listed);
  return snapshots.filter((_, index) => {
    const next = snapshots[index + 1];
    return next !== undefined && next.modifiedAt < expiredBefore;
  });
}
