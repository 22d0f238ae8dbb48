/**
 * One moment over all tables: a small object for each build, under a number that counts up, that names the
 * version of each table. Who joins tables reads them at the versions of one moment.
 */
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import type { ListedObject } from '../storage/object-store.ts';
import { LAKE_TABLES } from './tables/columns.ts';
import { listObjects, padded } from './delta/listing.ts';
import type { StoreAccess } from './local/scratch.ts';
import { LAKE_PREFIX } from './tables/tables.ts';

export const MOMENTS_PREFIX = `${LAKE_PREFIX}moments/`;
const MOMENT_BYTES_MAX = 2n ** 20n;

const schema = z.object({
  moment: z.number().int().nonnegative(),
  mirrorId: z.string(),
  builtAt: z.iso.datetime(),
  tables: z.partialRecord(
    z.enum(LAKE_TABLES),
    z.object({ id: z.string(), version: z.number().int().nonnegative() }),
  ),
});

export type LakeSnapshot = z.output<typeof schema>;
type SnapshotAccess = StoreAccess & { readonly listed?: readonly ListedObject[] };

interface ListedSnapshot extends ListedObject {
  readonly number: number;
}

/** In order. */
export function snapshotsAmong(
  listed: readonly ListedObject[],
): readonly ListedSnapshot[] {
  const found = listed.flatMap((object) => {
    const name = object.key.startsWith(MOMENTS_PREFIX)
      ? object.key.slice(MOMENTS_PREFIX.length)
      : '';
    const [, digits] = /^(\d{20})\.json$/.exec(name) ?? [];
    return digits === undefined ? [] : [{ ...object, number: Number(digits) }];
  });
  return found.toSorted((a, b) => a.number - b.number);
}

/**
 * The moment of a number, the newest one by default; undefined where there is none.
 * @param lake `listed`: a listing of it, where there is one
 * @throws PermanentError `LAKE_MOMENT_INVALID`
 */
export async function readSnapshot(
  lake: SnapshotAccess,
  number?: number,
): Promise<LakeSnapshot | undefined> {
  const moments = snapshotsAmong(
    lake.listed ?? (await listObjects(lake, MOMENTS_PREFIX)),
  );
  const listed =
    number === undefined
      ? moments.at(-1)
      : moments.find((moment) => moment.number === number);
  if (listed === undefined) return undefined;
  if (listed.bytes > MOMENT_BYTES_MAX)
    throw invalid(listed.key, `it has ${listed.bytes} bytes`);
  const content = await text(await lake.objects.read(listed.key, lake.signal));
  try {
    return schema.parse(JSON.parse(content));
  } catch (error) {
    throw invalid(listed.key, 'it is no moment', error);
  }
}

export async function publishSnapshot(
  { objects, signal }: StoreAccess,
  moment: LakeSnapshot,
): Promise<void> {
  const content = Buffer.from(`${JSON.stringify(moment, undefined, 2)}\n`);
  const key = `${MOMENTS_PREFIX}${padded(moment.moment)}.json`;
  await objects.publishBytes(key, content, signal, 'lake-moment-');
}

function invalid(key: string, state: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot read the lake's moment ${key}: ${state}; remove it, the one before it is used then, and load again`,
    { code: 'LAKE_MOMENT_INVALID', meta: { key }, cause },
  );
}
