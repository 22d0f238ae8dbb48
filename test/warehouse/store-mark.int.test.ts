/** How a database learns, in one small question, that its store is ahead. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { openWarehouse } from '../../src/postgres/database.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import {
  forgetMark,
  isStoreAhead,
  renewMark,
} from '../../src/warehouse/store/store-mark.ts';
import { freshDatabase } from '../support/database.ts';
import { NEVER_ABORTED as signal } from '../support/samples.ts';

const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
afterAll(() => warehouse[Symbol.asyncDispose]());

async function openCatalog() {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-mark-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await forgetMark(warehouse);
  return { db: warehouse.db, objects: openFileStore(folder) };
}

test('a store may be ahead until the first night has compared it', async () => {
  const catalog = await openCatalog();
  expect(await isStoreAhead(catalog, signal)).toBe(true);
  await renewMark(catalog, signal);
  expect(await isStoreAhead(catalog, signal)).toBe(false);
});

test('a store is ahead of a database that went back to a backup of before the last night', async () => {
  const catalog = await openCatalog();
  await renewMark(catalog, signal);
  const backup = await database.pool.query<{ store_mark: string }>(
    'select store_mark from mirror.identity',
  );
  await renewMark(catalog, signal);
  expect(await isStoreAhead(catalog, signal)).toBe(false);
  await database.pool.query('update mirror.identity set store_mark = $1', [
    backup.rows[0]?.store_mark,
  ]);
  expect(await isStoreAhead(catalog, signal)).toBe(true);
});

test('a mark that cannot be read makes the night compare', async () => {
  const catalog = await openCatalog();
  await renewMark(catalog, signal);
  const content = Buffer.from('no mark');
  await catalog.objects.replaceBytes('store-mark.json', content, signal);
  expect(await isStoreAhead(catalog, signal)).toBe(true);
});
