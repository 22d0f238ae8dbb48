/**
 * What somebody changes afterwards, one thing after the other, and the command that finds
 * it. Changes of the log's own files stand in commands.int.test.ts.
 */
import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { leafHash } from '../../src/proof/merkle.ts';
import { statementEntry } from '../../src/proof/statement.ts';
import { encodeEntries } from '../../src/proof/tiles.ts';
import { type MirrorHome, openHome } from '../cli/mirror-home.ts';
import { type FreshDatabase, openFreshDatabase } from '../support/database.ts';
import { forgetProofs } from '../support/mirror-arrange.ts';
import { startSandbox } from '../support/sandbox.ts';
import { forgeObject } from './forged-object.ts';

const stack = new AsyncDisposableStack();
let database: FreshDatabase;
let home: MirrorHome;
let kept: string;

beforeAll(async () => {
  const sandbox = stack.use(
    await startSandbox({ parties: 6, entriesMean: 40, rateLimit: 'none' }),
  );
  database = stack.use(await openFreshDatabase());
  home = stack.use(
    await openHome({ SOURCE_URL: sandbox.url, DATABASE_URL: database.url }),
  );
  for (let night = 0; night < 3; night += 1) await home.json(['nightly']);
  kept = join(home.dir, 'kept-checkpoint');
  await cp(join(home.objectsDir, 'proof/checkpoint'), kept);
}, 600_000);
afterAll(() => stack[Symbol.asyncDispose]());

describe('verify --deep', () => {
  test('finds a row of the warehouse that was changed', async () => {
    const change = (by: number) =>
      database.pool.query(
        `update mirror.ledger_entries set quantity = quantity + $1 where (party_id, vega_time) =
          (select party_id, vega_time from mirror.ledger_entries order by 1, 2 limit 1)`,
        [by],
      );
    await change(1);
    const found = await findings();
    await change(-1);
    expect(found).toContain('VALUES_DIFFER');
  });

  test('finds an object whose manifest was rewritten to match', async () => {
    const [object = ''] = await objectsOf('ledger', '.csv.zst');
    const manifest = `${object}.manifest.json`;
    await usingCopies([object, manifest], async () => {
      await forgeObject(object);
      const found = await findings();
      expect(found.length).toBeGreaterThan(0);
      expect(found.join(' ')).toMatch(/OBJECT_CORRUPT|MANIFEST_INVALID/);
    });
  });

  test('finds one changed byte of a file of the lake', async () => {
    const [file = ''] = await objectsOf('lake/ledger_entries', '.parquet');
    await usingCopies([file], async () => {
      const content = await readFile(file);
      const at = content.length >> 1;
      content[at] = (content[at] ?? 0) ^ 1;
      await writeFile(file, content);
      expect((await findings()).join(' ')).toMatch(/LAKE/);
    });
  });

  test('finds a night that was taken out of the middle, with the tiles made to match', async () => {
    const proof = join(home.objectsDir, 'proof');
    const paths = ['tile/0/000.p/3', 'tile/entries/000.p/3'];
    const statements = [0, 1, 2].map((night) => `statements/00000000${night}`);
    const files = [...paths, ...statements, 'checkpoint'].map((path) =>
      join(proof, path),
    );
    await usingCopies(files, async () => {
      const left = await Promise.all(
        [0, 2].map((night) => readFile(join(proof, statements[night] ?? ''))),
      );
      const entries = left.map((bytes) => statementEntry(bytes));
      await rm(join(proof, 'statements/000000002'));
      await writeFile(join(proof, 'statements/000000001'), left[1] ?? '');
      await writeFile(
        join(proof, 'tile/0/000.p/2'),
        Buffer.concat(entries.map(leafHash)),
      );
      await writeFile(
        join(proof, 'tile/entries/000.p/2'),
        encodeEntries(entries),
      );
      const note = await readFile(join(proof, 'checkpoint'), 'utf8');
      await writeFile(
        join(proof, 'checkpoint'),
        note.replace('\n3\n', '\n2\n'),
      );
      expect(await findings()).toContain('PROOF_SIGNATURE_INVALID');
    });
  });
});

describe('a kept checkpoint', () => {
  test('finds that the whole history was written anew with the key', async () => {
    const proof = join(home.objectsDir, 'proof');
    await rm(proof, { recursive: true });
    const { rows } = await database.pool.query<{ signing_key: string }>(
      'select signing_key from mirror.proof_log',
    );
    await forgetProofs(database.pool);
    const PROOF_KEY = rows[0]?.signing_key ?? '';
    for (let night = 0; night < 3; night += 1)
      await home.json(['nightly'], { PROOF_KEY });
    const alone = await home.json(['verify', '--deep'], { PROOF_KEY });
    expect(alone.code).toBe(0);
    const against = await findings(['--against', kept], { PROOF_KEY });
    expect(against).toContain('PROOF_LOG_FORKED');
  });
});

/** The codes of all that `verify --deep` finds. */
async function findings(
  more: readonly string[] = [],
  settings: Readonly<Record<string, string>> = {},
): Promise<readonly string[]> {
  const { code, document } = await home.json(
    ['verify', '--deep', ...more],
    settings,
  );
  expect(code).toBe(2);
  return [...JSON.stringify(document).matchAll(/"code":"([A-Z_]+)"/g)].map(
    ([, found = '']) => found,
  );
}

async function objectsOf(folder: string, end: string): Promise<string[]> {
  const entries = await readdir(join(home.objectsDir, folder), {
    recursive: true,
  });
  return entries
    .filter((path) => path.endsWith(end))
    .toSorted()
    .map((path) => join(home.objectsDir, folder, path));
}

/** Changes files, and puts them back as they were. */
async function usingCopies(
  paths: readonly string[],
  work: () => Promise<void>,
): Promise<void> {
  const contents = await Promise.all(paths.map((path) => readFile(path)));
  try {
    await work();
  } finally {
    for (const [index, path] of paths.entries())
      await writeFile(path, contents[index] ?? '');
  }
}
