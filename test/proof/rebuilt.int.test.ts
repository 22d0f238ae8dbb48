/**
 * A database that was lost and rebuilt from the objects: `verify --deep` compares every
 * ledger with the log of nights, which was kept beside the objects.
 */
import { execFile } from 'node:child_process';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { LogFindings } from '../../src/proof/verify-log.ts';
import { type MirrorHome, openHome } from '../cli/mirror-home.ts';
import { openFreshDatabase } from '../support/database.ts';
import { startSandbox } from '../support/sandbox.ts';
import { forgeObject } from './forged-object.ts';

const PARTIES = 6;
const run = promisify(execFile);
const stack = new AsyncDisposableStack();
let source: string;
let home: MirrorHome;

beforeAll(async () => {
  const sandbox = stack.use(
    await startSandbox({
      parties: PARTIES,
      entriesMean: 40,
      rateLimit: 'none',
    }),
  );
  source = sandbox.url;
  const database = stack.use(await openFreshDatabase());
  home = stack.use(
    await openHome({ SOURCE_URL: source, DATABASE_URL: database.url }),
  );
  for (let night = 0; night < 2; night += 1) await home.json(['nightly']);
}, 600_000);
afterAll(() => stack[Symbol.asyncDispose]());

describe('verify --deep after load --all into an empty database', () => {
  test('compares every ledger with the log, and finds nothing if nobody changed an object', async () => {
    await using rebuilt = await rebuild(() => Promise.resolve());
    expect(rebuilt).toMatchObject({
      code: 0,
      proof: { ledgers: PARTIES, problemCount: 0 },
    });
  });

  test.each([
    ['first', () => 0],
    ['last', (rows: number) => rows - 1],
  ])('finds an object whose %s row was forged before', async (_, rowOf) => {
    await using rebuilt = await rebuild(async (objects) => {
      const [object = ''] = await objectsOf(objects);
      await forgeObject(object, rowOf);
    });
    expect(rebuilt.code).toBe(2);
    expect(rebuilt.proof.problems.map(({ code }) => code)).toEqual([
      'PROOF_LEDGER_DIFFERS',
    ]);
  });

  test('finds a ledger whose objects were removed before', async () => {
    await using rebuilt = await rebuild(async (objects) => {
      const [object = ''] = await objectsOf(objects);
      await rm(object);
      await rm(`${object}.manifest.json`);
    });
    expect(rebuilt.code).toBe(2);
    expect(rebuilt.proof.problems.map(({ code }) => code)).toContain(
      'PROOF_LEDGER_DIFFERS',
    );
  });
});

describe('the night after load --all into an empty database', () => {
  test('continues the same log with the same key', async () => {
    await using rebuilt = await rebuild(() => Promise.resolve());
    const night = await rebuilt.home.json(['nightly']);
    expect(night.document).toMatchObject({
      verdict: 'complete',
      evidence: { proof: { night: 2, changed: 0 } },
    });
  });
});

/** A mirror whose database was lost, rebuilt after somebody had changed its objects. */
async function rebuild(change: (objectsDir: string) => Promise<void>) {
  await using made = new AsyncDisposableStack();
  const database = made.use(await openFreshDatabase());
  const settings = { SOURCE_URL: source, DATABASE_URL: database.url };
  const copy = made.use(await openHome(settings));
  await run('cp', ['-r', home.dataDir, copy.dataDir]);
  await change(copy.objectsDir);
  await copy.json(['load', '--all', '--take-over']);
  const { code, document } = await copy.json(['verify', '--deep']);
  const proof = document.evidence?.['proof'] as LogFindings;
  const owned = made.move();
  return {
    home: copy,
    code,
    proof,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** The objects with the entries of ledgers, in order. */
async function objectsOf(objectsDir: string): Promise<string[]> {
  const folder = join(objectsDir, 'ledger');
  const paths = await readdir(folder, { recursive: true });
  return paths
    .filter((path) => path.endsWith('.csv.zst'))
    .toSorted()
    .map((path) => join(folder, path));
}
