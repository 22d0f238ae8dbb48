/**
 * `npm run test:package`: packs the package, installs it globally into an empty prefix on
 * a path with a space, and runs it there as a user of a bare machine would. Needs only
 * Node, npm and the registry.
 */
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pack } from './package.ts';
import { command, expect, runSteps, succeed } from './steps.ts';

const PACKED_BYTES_MAX = 2 * 1024 * 1024;
const scratch = await mkdtemp(join(tmpdir(), 'ledger mirror package '));
const prefix = join(scratch, 'pre fix');
const home = join(scratch, 'home');
const folder = join(scratch, 'empty folder');
const bin = join(prefix, 'bin', 'ledger-mirror');
/** The environment of a new user's login shell, with nothing from this process. */
const bare = {
  PATH: `${process.env['SYSTEM_NODE_DIR'] ?? dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`,
  HOME: home,
  NODE_COMPILE_CACHE: undefined,
  DATABASE_URL: undefined,
  REDIS_URL: undefined,
  OBJECT_STORE_URL: undefined,
};
let tarball = '';

try {
  for (const path of [prefix, home, folder]) await mkdir(path);
  await runSteps([
    {
      name: 'npm run package: only what runs, at most 2 MiB',
      run: async () => {
        const packed = await pack(scratch);
        tarball = join(scratch, packed.filename);
        expect(packed.size <= PACKED_BYTES_MAX, `${packed.size} bytes`);
        expect(
          packed.files.some(({ path }) => path === 'dist/src/main.js'),
          'the program is not in it',
        );
        const others = packed.files.filter(
          ({ path }) =>
            !/^(?:dist\/|bin\/|package\.json$|README\.md$|LICENSE$|CHANGELOG\.md$|docs\/run\.schema\.json$)/.test(
              path,
            ),
        );
        expect(others.length === 0, `also in it: ${JSON.stringify(others)}`);
        expect(
          (await stat(tarball)).size === packed.size,
          'the size that npm tells is not the file’s',
        );
      },
    },
    {
      name: 'publint --strict',
      run: async () => {
        await succeed('node_modules/.bin/publint', [
          'run',
          '--strict',
          tarball,
        ]);
      },
    },
    {
      name: 'npm install --global into an empty prefix',
      run: async () => {
        await succeed('npm', [
          'install',
          '--global',
          '--prefix',
          prefix,
          '--no-audit',
          '--no-fund',
          tarball,
        ]);
      },
    },
    {
      name: 'ledger-mirror demo in an empty folder',
      run: async () => {
        const version = await succeed(bin, ['--version'], {
          cwd: folder,
          env: bare,
        });
        expect(version.trim() === '0.1.0', version);
        const text = await succeed(bin, ['demo', '--json'], {
          cwd: folder,
          env: bare,
        });
        expect(
          (JSON.parse(text) as { verdict: string }).verdict === 'complete',
          text,
        );
        expect(
          (await readdir(folder)).join() === 'data',
          `more than data was left in the folder`,
        );
      },
    },
    {
      name: 'what is compiled is kept outside of the package',
      run: async () => {
        const { output } = await command('find', [
          prefix,
          '-path',
          '*ledger-mirror/compiled*',
        ]);
        expect(output === '', output);
        expect(
          (await readdir(join(home, '.cache', 'ledger-mirror'))).includes(
            'compiled',
          ),
          'not in ~/.cache',
        );
      },
    },
  ]);
} finally {
  await rm(scratch, { recursive: true, force: true });
}
