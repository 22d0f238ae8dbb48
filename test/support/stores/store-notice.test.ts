/** Tests what a test run prints if it had no real object store. */
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../../..');

/**
 * Runs one quick test from the named file in a separate test run.
 * @returns the last line
 */
function lastLineOf(file: string): string | undefined {
  const vitest = resolve(ROOT, 'node_modules/vitest/vitest.mjs');
  const args = [
    vitest,
    'run',
    '--project',
    'unit',
    file,
    '-t',
    'an endpoint that is no URL|nothing at all',
  ];
  const { stdout } = spawnSync(process.execPath, args, {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: 100_000,
  });
  return stdout.trimEnd().split('\n').at(-1);
}

test('a run that met S3 only as a double says so in its last line, and another does not', () => {
  expect(lastLineOf('test/storage/s3-store.test.ts')).toMatch(
    /^No real object store was run: .*npm run test:stores/,
  );
  expect(lastLineOf('test/ledger/object-keys.test.ts')).not.toContain(
    'No real object store',
  );
});
