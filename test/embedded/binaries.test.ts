/** Which server the embedded Postgres is: the system's where that is as new, for it is fixed sooner. */
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findBinaries } from '../../src/embedded/binaries.ts';

let root = '';
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'ledger-mirror-binaries-'));
  await chmod(root, 0o755);
});
afterAll(() => rm(root, { recursive: true, force: true }));

test("the system's server is used where it has the packaged version", async () => {
  const packaged = findBinaries({}, () => []);
  const system = join(root, 'same');
  await symlink(dirname(packaged.binDir), system);
  expect(findBinaries({}, () => [system])).toEqual({ ...packaged, binDir: join(system, 'bin') });
});

test.each([
  ['an older minor version', (major: string) => `${major}.0`],
  ['another major version', (major: string) => `${Number(major) + 1}.9`],
  ['no version at all', () => 'nonsense'],
])('%s of the system is left alone', async (name, versionOf) => {
  const packaged = findBinaries({}, () => []);
  const folder = join(root, name);
  await mkdir(join(folder, 'bin'), { recursive: true });
  const script = `#!/bin/sh\necho "postgres (PostgreSQL) ${versionOf(packaged.major)}"\n`;
  for (const program of ['postgres', 'initdb'])
    await writeFile(join(folder, 'bin', program), script, { mode: 0o755 });
  expect(findBinaries({}, () => [folder])).toEqual(packaged);
});
