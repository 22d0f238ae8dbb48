/** Which Postgres is run: the system's, if it is as new as the packaged one. */
import {
  chmod,
  mkdir,
  mkdtemp,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
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

test("findBinaries prefers the system's server of the packaged version", async () => {
  const packaged = findBinaries({}, () => []);
  const system = join(root, 'same');
  await symlink(dirname(packaged.binDir), system);

  const found = findBinaries({}, () => [join(root, 'missing'), system]);

  expect(found).toEqual({ ...packaged, binDir: join(system, 'bin') });
});

test.each([
  ['an older minor version', (major: string) => `${major}.0`],
  ['another major version', (major: string) => `${Number(major) + 1}.9`],
  ['no version', () => 'nonsense'],
])(
  "findBinaries leaves the system's server of %s alone",
  async (name, versionOf) => {
    const packaged = findBinaries({}, () => []);
    const folder = join(root, name);
    await mkdir(join(folder, 'bin'), { recursive: true });
    const version = versionOf(packaged.major);
    for (const program of ['postgres', 'initdb']) {
      const script = `#!/bin/sh\necho "postgres (PostgreSQL) ${version}"\n`;
      await writeFile(join(folder, 'bin', program), script, { mode: 0o755 });
    }

    expect(findBinaries({}, () => [folder])).toEqual(packaged);
  },
);
