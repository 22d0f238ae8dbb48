/**
 * Snapshots of the lake. Each build publishes one small object under an increasing
 * number. It lists the version of every table, so that a reader who joins tables gets
 * versions that belong together.
 *
 * The objects are under `lake/moments/`, and the field is called `moment`. Both names
 * predate the word snapshot, and readers of published lakes rely on them.
 */
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import type { ListedObject } from '../storage/object-store.ts';
import { LAKE_TABLES } from './tables/columns.ts';
import { listObjects, padded } from './delta/listing.ts';
import type { StoreAccess } from './local/scratch.ts';
import { LAKE_PREFIX } from './tables/tables.ts';

export const SNAPSHOTS_PREFIX = `${LAKE_PREFIX}moments/`;
const SNAPSHOT_BYTES_MAX = 2n ** 20n;
const FILE_NAME = /^(\d{20})\.json$/;

const schema = z.object({
  moment: z.number().int().nonnegative(),
  mirrorId: z.string(),
  builtAt: z.iso.datetime(),
  tables: z.partialRecord(
    z.enum(LAKE_TABLES),
    z.object({ id: z.string(), version: z.number().int().nonnegative() }),
  ),
});

/**
 * The state of all tables at one time. `moment` is the snapshot's number; `tables` has no
 * entry for a table that was never written.
 */
export type LakeSnapshot = z.output<typeof schema>;

interface SnapshotAccess extends StoreAccess {
  /**
   * The caller's listing of the lake, if it has one; without it, the snapshots are listed
   * here.
   */
  readonly listed?: readonly ListedObject[];
}

interface ListedSnapshot extends ListedObject {
  readonly number: number;
}

/** Returns the snapshots that are among the listed objects, sorted by number. */
export function snapshotsAmong(
  listed: readonly ListedObject[],
): readonly ListedSnapshot[] {
  const snapshots: ListedSnapshot[] = [];
  for (const object of listed) {
    if (!object.key.startsWith(SNAPSHOTS_PREFIX)) continue;
    const match = FILE_NAME.exec(object.key.slice(SNAPSHOTS_PREFIX.length));
    if (match !== null) snapshots.push({ ...object, number: Number(match[1]) });
  }
  return snapshots.toSorted((a, b) => a.number - b.number);
}

/**
 * Reads one snapshot.
 * @param number the newest one by default
 * @returns undefined if the snapshot does not exist
 * @throws PermanentError `LAKE_MOMENT_INVALID` if the object is too large or is not a
 *   snapshot
 */
export async function readSnapshot(
  lake: SnapshotAccess,
  number?: number,
): Promise<LakeSnapshot | undefined> {
  const snapshots = snapshotsAmong(
    lake.listed ?? (await listObjects(lake, SNAPSHOTS_PREFIX)),
  );
  const listed =
    number === undefined
      ? snapshots.at(-1)
      : snapshots.find((snapshot) => snapshot.number === number);
  if (listed === undefined) return undefined;
  if (listed.bytes > SNAPSHOT_BYTES_MAX)
    throw invalidSnapshot(listed.key, `it has ${listed.bytes} bytes`);
  const content = await text(await lake.objects.read(listed.key, lake.signal));
  try {
    return schema.parse(JSON.parse(content));
  } catch (error) {
    throw invalidSnapshot(listed.key, 'it is not a snapshot', error);
  }
}

export async function publishSnapshot(
  { objects, signal }: StoreAccess,
  snapshot: LakeSnapshot,
): Promise<void> {
  const content = Buffer.from(`${JSON.stringify(snapshot, undefined, 2)}\n`);
  const key = `${SNAPSHOTS_PREFIX}${padded(snapshot.moment)}.json`;
  await objects.publishBytes(key, content, signal, 'lake-moment-');
}

function invalidSnapshot(
  key: string,
  state: string,
  cause?: unknown,
): PermanentError {
  return new PermanentError(
    `Cannot read the lake's snapshot ${key}: ${state}; remove it and load again ` +
      '(the one before it is used then)',
    { code: 'LAKE_MOMENT_INVALID', meta: { key }, cause },
  );
}
