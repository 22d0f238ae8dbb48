import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FileStore } from '../../src/objects/file-store.ts';
import { describeObjectStore } from './store-contract.ts';

let folder: string;
let stores = 0;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-objects-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function openStore(): Promise<FileStore> {
  stores += 1;
  return new FileStore(join(folder, `a store ${stores}`, 'deep'));
}

describeObjectStore('FileStore', { put: 'honoured', multipart: 'honoured', hasOneWinner: true }, openStore);

test('a file store with an unwritable root fails with one clear error', async () => {
  const root = join(folder, 'blocked');
  await writeFile(root, 'a file where the folder should be');
  await expect(new FileStore(root).spoolPath('x')).rejects.toThrow(
    expect.objectContaining({ code: expect.stringMatching(/^OBJECT_STORE_E/) }),
  );
});

test('a file store does not take a folder at the key for an object', async () => {
  const root = join(folder, 'with-folder');
  await mkdir(join(root, 'ledger'), { recursive: true });
  expect(await new FileStore(root).head('ledger')).toBeUndefined();
});
