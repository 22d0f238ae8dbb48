/** What a package from the registry may do here, and how it is told from another. */
import { spawnSync } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');

interface LockEntry {
  readonly integrity?: string;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
}

test('an install script of a dependency does not run', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-supply-'));
  try {
    await cp(join(ROOT, '.npmrc'), join(folder, '.npmrc'));
    await mkdir(join(folder, 'evil'));
    const mark = join(folder, 'it-ran');
    const scripts = {
      install: `node -e "require('fs').writeFileSync(process.env.MARK, '')"`,
    };
    await writeFile(
      join(folder, 'evil/package.json'),
      JSON.stringify({ name: 'evil', version: '1.0.0', scripts }),
    );
    const npm = (args: readonly string[], cwd: string): number | null =>
      spawnSync('npm', [...args], {
        cwd,
        env: { ...process.env, MARK: mark },
        timeout: 60_000,
      }).status;
    expect(
      npm(['pack', '--pack-destination', folder], join(folder, 'evil')),
    ).toBe(0);
    // As any version of npm would: `allowScripts` in package.json is known to npm 11
    // alone.
    await writeFile(
      join(folder, 'package.json'),
      JSON.stringify({
        name: 'host',
        dependencies: { evil: 'file:evil-1.0.0.tgz' },
      }),
    );
    expect(npm(['install', '--offline'], folder)).toBe(0);
    expect(
      JSON.parse(
        await readFile(join(folder, 'node_modules/evil/package.json'), 'utf8'),
      ),
    ).toMatchObject({
      name: 'evil',
    });
    await expect(readFile(mark)).rejects.toThrow('ENOENT');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('every package that is installed on 64-bit Intel Linux is known by its integrity', async () => {
  const lock = JSON.parse(
    await readFile(join(ROOT, 'package-lock.json'), 'utf8'),
  ) as {
    readonly packages: Readonly<Record<string, LockEntry>>;
  };
  const isFor = (given: readonly string[] | undefined, one: string): boolean =>
    given === undefined || given.includes(one);
  const unknown = Object.entries(lock.packages).filter(
    ([path, { integrity, os, cpu, libc }]) =>
      path !== '' &&
      integrity === undefined &&
      isFor(os, 'linux') &&
      isFor(cpu, 'x64') &&
      isFor(libc, 'glibc'),
  );
  expect(unknown.map(([path]) => path)).toEqual([]);
});
