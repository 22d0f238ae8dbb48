/**
 * Detects with one small request whether the store is ahead of the database. The object
 * `store-mark.json` and the database store the same id, which each nightly run renews
 * before it publishes anything. A database restored from a backup older than the last
 * nightly run has an older id, and only then are the store's keys listed and compared.
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
 * Whether the store may contain objects that the database does not know about.
 * @returns also true if either has no mark yet, or if a rebuild is unfinished
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

/**
 * Writes the same new mark to the store and the database. Call this only once the
 * database knows everything in the store.
 */
export async function renewMark(
  catalog: StoreAndCatalog,
  signal: AbortSignal,
): Promise<void> {
  const mark = randomUUID();
  const content = Buffer.from(`${JSON.stringify({ version: 1, mark })}\n`);
  // If the process is killed between the two writes, the next nightly run compares the
  // store with the database, which costs a listing.
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

/**
 * Reads the store's mark.
 * @returns undefined if there is no mark that this version can read
 */
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
