import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openFileStore } from '../../src/storage/file-store.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { describeObjectStore } from './store-contract.ts';

let folder: string;
let stores = 0;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-objects-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function openStore(): Promise<ObjectStore> {
  stores += 1;
  return openFileStore(join(folder, `a store ${stores}`, 'deep'));
}

describeObjectStore(
  'FileStore',
  { put: 'honoured', multipart: 'honoured', hasOneWinner: true },
  openStore,
);

test('a file store with an unwritable root fails with one clear error', async () => {
  const root = join(folder, 'blocked');
  await writeFile(root, 'a file where the folder should be');
  await expect(openFileStore(root).spoolPath('x')).rejects.toThrow(
    expect.objectContaining({ code: expect.stringMatching(/^OBJECT_STORE_E/) }),
  );
});

test('a file store does not take a folder at the key for an object', async () => {
  const root = join(folder, 'with-folder');
  await mkdir(join(root, 'ledger'), { recursive: true });
  expect(
    await openFileStore(root).head('ledger', new AbortController().signal),
  ).toBeUndefined();
});
