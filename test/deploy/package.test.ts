/**
 * What the package is made of, told without installing it; `npm run test:package`
 * installs and runs it.
 */
import { spawnSync } from 'node:child_process';
import {
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildDist, toJavaScript } from '../../scripts/build-dist.ts';
import { notesOf } from '../../scripts/release.ts';

const ROOT = resolve(import.meta.dirname, '../..');
let dir = '';
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ledger mirror package '));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

describe('stripping types', () => {
  test('leaves each line where it was and points imports at JavaScript', () => {
    const source = `import { a } from './a.ts';\nimport type { B } from '../b.ts';\nconst c: number = a as number;\nnew URL('thread.ts', import.meta.url);\n`;
    const [first, second, third, fourth] = toJavaScript(source).split('\n');
    expect([first, second?.trim(), fourth]).toEqual([
      "import { a } from './a.js';",
      '',
      "new URL('thread.js', import.meta.url);",
    ]);
    expect(third?.replaceAll(/ +/g, ' ')).toBe('const c = a ;');
  });

  test('keeps a file name of which a message speaks', () => {
    expect(toJavaScript('const text = "see release.ts and others";')).toContain(
      'see release.ts and others',
    );
  });
});

describe('the package', () => {
  test('starts from below a node_modules, where Node strips no types, on a path with a space', async () => {
    const installed = join(dir, 'node_modules', 'ledger-mirror');
    await mkdir(installed, { recursive: true });
    await buildDist(join(installed, 'dist'));
    await cp(join(ROOT, 'bin'), join(installed, 'bin'), { recursive: true });
    await cp(join(ROOT, 'package.json'), join(installed, 'package.json'));
    await symlink(join(ROOT, 'node_modules'), join(installed, 'node_modules'));
    const ran = (...args: string[]) =>
      spawnSync(
        process.execPath,
        [join(installed, 'bin', 'ledger-mirror.js'), ...args],
        {
          cwd: dir,
          env: { PATH: process.env['PATH'], HOME: dir },
          encoding: 'utf8',
        },
      );
    const { version } = JSON.parse(
      await readFile(join(ROOT, 'package.json'), 'utf8'),
    ) as { version: string };
    expect(ran('--version')).toMatchObject({
      stdout: `${version}\n`,
      stderr: '',
      status: 0,
    });
    // Loads the stages, the migrations and the embedded Postgres's wrapper, and refuses
    // for its own reason.
    expect(ran('worker').stderr).toBe(
      'ledger-mirror: SOURCE_URL: not set, and this command queries the source; give the URL of the query service\n',
    );
  });

  test('has its largest library as one file, and imports it from nowhere else', async () => {
    const dist = join(dir, 'node_modules', 'ledger-mirror', 'dist');
    const scripts = await readdir(dist, { recursive: true });
    const importing = await Promise.all(
      scripts
        .filter((path) => path.endsWith('.js'))
        .map(async (path) => {
          const text = await readFile(join(dist, path), 'utf8');
          return /^[^*]*(?:from|import\() ?'kysely'/m.test(text) ? path : '';
        }),
    );
    expect(importing.filter((path) => path !== '')).toEqual([]);
    const bundle = join(dist, 'bundled', 'kysely.js');
    expect((await readFile(bundle, 'utf8')).slice(0, 200)).toContain('MIT');
  });

  test('has release notes for its version', async () => {
    const { version } = JSON.parse(
      await readFile(join(ROOT, 'package.json'), 'utf8'),
    ) as { version: string };
    const changelog = await readFile(join(ROOT, 'CHANGELOG.md'), 'utf8');
    expect(notesOf(changelog, version)).toMatch(/^### Added\n\n- /);
    expect(() => notesOf(changelog, '9.9.9')).toThrow('no section [9.9.9]');
  });
});
