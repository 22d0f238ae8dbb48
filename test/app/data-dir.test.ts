import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { requireWritable } from '../../src/app/data-dir.ts';

let dir = '';
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ledger-mirror data-dir '));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

describe('the data directory', () => {
  test('is made where it is missing, and nothing is left in it', async () => {
    const path = join(dir, 'made', 'data');
    await requireWritable(path);
    expect(await readdir(path)).toEqual([]);
  });

  test('is refused where its parents are there and nothing can be made in them', async () => {
    await expect(requireWritable('/proc/nothing/data')).rejects.toThrow(
      'cannot write to /proc/nothing/data (ENOENT)',
    );
  });

  test('is refused with what to do where nothing can be written in it', async () => {
    // A folder's place is taken by a file: refused to every user, root included.
    const path = join(dir, 'file', 'data');
    await writeFile(join(dir, 'file'), '');
    await expect(requireWritable(path)).rejects.toThrow(
      `DATA_DIR: cannot write to ${path} (ENOTDIR); make it writable for user`,
    );
  });
});
