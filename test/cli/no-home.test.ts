/** A process whose user the system does not know, as a container with a random uid has it. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { Child } from '../support/process.ts';

const BIN = resolve(import.meta.dirname, '../../bin/ledger-mirror.js');
/** What Node does for such a user, while a known one runs the test. */
const UNKNOWN_USER = `
const os = require('node:os');
os.homedir = () => {
  if (process.env.HOME) return process.env.HOME;
  throw Object.assign(new Error('uv_os_homedir returned ENOENT'), { code: 'ERR_SYSTEM_ERROR' });
};
require('node:module').syncBuiltinESMExports();
`;

test('a user without a home gets one line about its service file, and no error of Node', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'lm-no-home-'));
  try {
    const preload = join(folder, 'unknown-user.cjs');
    await writeFile(preload, UNKNOWN_USER);
    await using child = new Child(
      process.execPath,
      ['--require', preload, BIN, 'config'],
      {
        cwd: folder,
        env: { HOME: undefined, DATABASE_URL: 'postgres://db?service=ledger' },
      },
    );
    expect(await child.end()).toMatchObject({ code: 1 });
    expect(child.stderr).toContain('/.pg_service.conf cannot be read');
    expect(child.stderr).not.toContain('uv_os_homedir');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
