/**
 * Whether the store is ahead of the database, in one small question. The object
 * `store-mark.json` and the database hold the same id, which each nightly run renews
 * before it publishes anything. A database that was restored from a backup of before the
 * last night has an older id: only then are the store's keys listed and compared.
 */
import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { errorCode } from '../../errors/errors.ts';
import { parseJson } from '../../ledger/json-fields.ts';
import { builder } from '../../postgres/builder.ts';
import { execute, readRow } from '../../postgres/run-statement.ts';
import type { StoreAndCatalog } from './unknown-objects.ts';

const MARK_KEY = 'store-mark.json';
const MARK_BYTES_MAX = 4096;

const markSchema = z.object({ version: z.literal(1), mark: z.uuid() });

/**
 * @returns true if the store may hold what the database does not know; also if either has
 *   no mark yet, or a rebuild has not ended
 */
export async function isStoreAhead(
  { objects, db }: StoreAndCatalog,
  signal: AbortSignal,
): Promise<boolean> {
  const known = builder
    .selectFrom('mirror.identity')
    .select(['store_mark as mark', 'is_rebuilding as isRebuilding']);
  const { mark, isRebuilding } = await readRow(db, 'read the mark', known);
  if (isRebuilding || mark === null) return true;
  return mark !== (await readMark(objects, signal));
}

/** The database knows all that the store holds: both get the same new mark. */
export async function renewMark(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
): Promise<void> {
  const mark = randomUUID();
  const content = Buffer.from(`${JSON.stringify({ version: 1, mark })}\n`);
  // A kill between the two makes the next night compare: that costs a listing.
  await catalog.objects.replaceBytes(MARK_KEY, content, signal);
  await keepMark(catalog, mark);
}

/** Makes the next nightly run compare the store with the database. */
export function forgetMark(
  catalog: Pick<StoreAndCatalog, 'db'>,
): Promise<void> {
  return keepMark(catalog, null);
}

async function keepMark(
  { db }: Pick<StoreAndCatalog, 'db'>,
  mark: string | null,
): Promise<void> {
  const update = builder
    .updateTable('mirror.identity')
    .set({ store_mark: mark });
  await execute(db, 'keep the mark of the object store', update);
}

/** @returns undefined if there is none that this version can read */
async function readMark(
  objects: StoreAndCatalog['objects'],
  signal: AbortSignal,
): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of await objects.read(MARK_KEY, signal)) {
      bytes += (chunk as Buffer).length;
      if (bytes > MARK_BYTES_MAX) return undefined;
      chunks.push(chunk as Buffer);
    }
  } catch (error) {
    if (errorCode(error) === 'OBJECT_MISSING') return undefined;
    throw error;
  }
  const text = Buffer.concat(chunks).toString('utf8');
  return markSchema.safeParse(parseJson(text)).data?.mark;
}
