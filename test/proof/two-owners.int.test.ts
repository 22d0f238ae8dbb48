/**
 * Two whole mirrors on one store, as after a backup of the database was restored while
 * the first mirror went on: one log never gets two histories.
 */
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type MirrorHome, openHome } from '../cli/mirror-home.ts';
import {
  type FreshDatabase,
  openCopy,
  openFreshDatabase,
} from '../support/database.ts';
import { startSandbox } from '../support/sandbox.ts';

const stack = new AsyncDisposableStack();
let settings: Readonly<Record<string, string>>;
let database: FreshDatabase;
let first: MirrorHome;
let restored: MirrorHome;

beforeAll(async () => {
  const sandbox = stack.use(
    await startSandbox({ parties: 4, entriesMean: 20, rateLimit: 'none' }),
  );
  database = stack.use(await openFreshDatabase());
  settings = { SOURCE_URL: sandbox.url };
  first = stack.use(
    await openHome({ ...settings, DATABASE_URL: database.url }),
  );
  await first.json(['nightly']);
  const backup = stack.use(await openCopy(database));
  // The first mirror goes on, so the backup knows one night less than the log has.
  await first.json(['nightly']);
  restored = stack.use(
    await openHome({
      ...settings,
      DATABASE_URL: backup.url,
      OBJECT_STORE_URL: `file://${encodeURI(first.objectsDir)}`,
    }),
  );
}, 600_000);
afterAll(() => stack[Symbol.asyncDispose]());

describe('two mirrors on one store', () => {
  test('the restored one writes no night, until it takes over and continues the same log', async () => {
    const before = await checkpoint();
    const refused = await restored.run(['nightly']);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('owns');
    expect(await checkpoint()).toBe(before);

    await restored.run(['load', '--all', '--take-over']);
    const kept = join(first.dir, 'kept');
    await writeFile(kept, before);
    const night = await restored.json(['nightly']);
    expect(night.document.evidence?.['proof']).toMatchObject({ night: 2 });
    const verified = await restored.json([
      'verify',
      '--deep',
      '--against',
      kept,
    ]);
    expect(verified.document.evidence?.['proof']).toMatchObject({
      nights: 3,
      problemCount: 0,
    });
  });

  test('the former owner then writes no night', async () => {
    const before = await checkpoint();
    const refused = await first.run(['nightly']);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('owns');
    expect(await checkpoint()).toBe(before);
  });
});

describe('two copies of a store, each with one database of the same mirror', () => {
  test('the one that lacks nights of its database refuses to continue the log', async () => {
    const copy = join(first.dir, 'older');
    await mkdir(copy);
    await cp(first.objectsDir, copy, { recursive: true });
    const night = await restored.json(['nightly']);
    expect(night.code).toBe(0);
    const forked = await restored.json(['nightly'], {
      OBJECT_STORE_URL: `file://${encodeURI(copy)}`,
    });
    expect(forked.code).not.toBe(0);
    expect(JSON.stringify(forked.document)).toContain('PROOF_LOG_FORKED');
  });
});

function checkpoint(): Promise<string> {
  return readFile(join(first.objectsDir, 'proof/checkpoint'), 'utf8');
}
