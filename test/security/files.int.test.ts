/**
 * What the mirror writes is for the user that it runs as, whatever the shell's umask is.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { startSandbox } from '../support/sandbox.ts';
import { openHome } from '../cli/mirror-home.ts';
import { freshDatabase } from '../support/database.ts';

const database = await freshDatabase();

describe('objects, lake and spool', () => {
  test('can be read by no other user', async () => {
    const former = process.umask(0o022);
    const sandbox = await startSandbox({
      parties: 3,
      entriesMean: 10,
      rateLimit: 'none',
    });
    await using home = await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: database.url,
    });
    try {
      const { code } = await home.run(['nightly']);
      expect(code).toBe(0);
    } finally {
      process.umask(former);
      await sandbox.stop();
    }
    const entries = await readdir(home.dataDir, {
      recursive: true,
      withFileTypes: true,
    });
    const paths = [
      home.dataDir,
      ...entries.map((entry) => join(entry.parentPath, entry.name)),
    ];
    expect(paths.some((path) => path.includes('/ledger/party='))).toBe(true);
    expect(paths.some((path) => path.includes('/lake/'))).toBe(true);
    const open: string[] = [];
    for (const path of paths)
      if (((await stat(path)).mode & 0o077) !== 0) open.push(path);
    expect(open).toEqual([]);
  });
});
