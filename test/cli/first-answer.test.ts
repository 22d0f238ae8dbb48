/**
 * What a command loads before it answers: `--version` and `--help` load neither the log nor
 * what only a connection needs, which took longer to load than everything else together. A
 * query loads no code for services that it does not read.
 */
import { spawnSync } from 'node:child_process';
import { mkdir, mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const HEAVY = /^node_modules\/(?:pino|kysely|pg|undici|fastify|zod|@)/;
/** Prints every module that is loaded, and those of Node that were. */
const WATCH = `
import { registerHooks } from 'node:module';
const loaded = [];
registerHooks({ load: (url, context, next) => (loaded.push(url), next(url, context)) });
process.on('exit', () => process.stderr.write('loaded ' + JSON.stringify(loaded)));
`;

function loadedBy(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): readonly string[] {
  const watch = `data:text/javascript,${encodeURIComponent(WATCH)}`;
  const { stderr } = spawnSync(
    process.execPath,
    ['--import', watch, join(ROOT, 'bin/ledger-mirror.js'), ...args],
    { encoding: 'utf8', env: { ...process.env, ...env } },
  );
  const json = /loaded (?<json>\[.*\])/.exec(stderr)?.groups?.['json'] ?? '[]';
  const base = `${pathToFileURL(ROOT).href}/`;
  return (JSON.parse(json) as string[]).map((url) => url.replace(base, ''));
}

test.each(['--version', '--help'])(
  '%s loads no log, no database and no keys',
  (option) => {
    const loaded = loadedBy([option]);
    expect(loaded).toContain('src/cli/program.ts');
    expect(loaded.filter((name) => HEAVY.test(name))).toEqual([]);
    const ofNode = ['node:crypto', 'node:tls'];
    expect(loaded.filter((name) => ofNode.includes(name))).toEqual([]);
  },
);

test('a query of a local store loads no database, no client of S3 and no HTTP', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'query-'));
  // There is no lake yet, which only the store can tell.
  await mkdir(join(folder.path, 'objects'));
  const loaded = loadedBy(['query', 'daily-flows'], { DATA_DIR: folder.path });
  expect(loaded).toContain('src/lake/snapshot.ts');
  const heavy = /^node_modules\/(?:kysely|pg|undici|fastify|@aws-sdk|@smithy)/;
  expect(loaded.filter((name) => heavy.test(name))).toEqual([]);
  const ofNode = ['node:http', 'node:https', 'node:http2'];
  expect(loaded.filter((name) => ofNode.includes(name))).toEqual([]);
});
