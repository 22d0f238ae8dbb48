/**
 * The main job through the real binary, on both queue backends: afterwards the mirror
 * holds the truth.
 */
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { startSandbox } from '../../support/sandbox.ts';
import { openFreshDatabase } from '../../support/database.ts';
import { freshRedis } from '../../support/servers/redis.ts';
import { expectLedgers, expectLists, strayObjects } from '../expect-truth.ts';
import { filesBelow, openHome, type MirrorHome } from '../mirror-home.ts';
import { falsifyDigests } from '../../support/mirror-arrange.ts';

/** The key of the last night's report. */
async function newestReport({ objectsDir }: MirrorHome): Promise<string> {
  const files = await filesBelow(join(objectsDir, 'runs'));
  return `runs/${basename(files.toSorted().at(-1) ?? '')}`;
}

const redis = await freshRedis();
const HOUR_MS = 3_600_000;

interface LakeDocument {
  readonly moments: readonly number[];
  readonly tables: readonly { readonly table: string; readonly rows: string }[];
}

async function entriesOf(home: MirrorHome): Promise<string> {
  const { stdout } = await home.run([
    'query',
    'select count(*) from ledger_entries',
    '--format',
    'csv',
  ]);
  return stdout.trim().split('\n').at(-1) ?? '';
}

/** Of two moments, the first is restored, and a load brings the lake up to date again. */
async function expectLakeCommands(home: MirrorHome): Promise<void> {
  const shown = (await home.json(['lake'])).document as unknown as LakeDocument;
  const first = shown.moments[0] ?? 0;
  const last = shown.moments.at(-1) ?? 0;
  expect(last).toBeGreaterThan(first);
  const rows =
    shown.tables.find(({ table }) => table === 'ledger_entries')?.rows ?? '';
  expect(await entriesOf(home)).toBe(rows);
  const text = await home.run(['lake']);
  expect(text.stdout).toMatch(/^ledger_entries +\d+ +0 /m);
  expect(text.stdout).toContain(`can be restored: ${shown.moments.join(', ')}`);
  expect((await home.json(['lake', 'vacuum'])).document).toEqual({
    removed: 0,
  });

  const restored = await home.json(['lake', 'restore', String(first)]);
  expect(restored.code).toBe(0);
  expect(restored.document['tables']).toContain('ledger_entries');
  expect(Number(await entriesOf(home))).toBeLessThan(Number(rows));
  expect((await home.json(['load'])).document.verdict).toBe('complete');
  expect(await entriesOf(home)).toBe(rows);
  const unknown = await home.run(['lake', 'restore', '99999']);
  expect([unknown.code, unknown.stderr]).toEqual([
    1,
    expect.stringContaining('there is no version 99999'),
  ]);
}

describe.concurrent.each([
  ['in Postgres', undefined],
  ['in Redis', redis.url],
])('queues %s', (_, redisUrl) => {
  test('lists, ledgers, table, lake and sums agree with the source after every nightly run', async () => {
    await using sandbox = await startSandbox({
      parties: 60,
      entriesMean: 40,
      checkpointIntervalMs: HOUR_MS,
      rateLimit: 'none',
    });
    await using database = await openFreshDatabase();
    const settings = {
      SOURCE_URL: sandbox.url,
      DATABASE_URL: database.url,
      REDIS_URL: redisUrl,
      SOURCE_PAGE_SIZE: '25',
    };
    await using home = await openHome(settings);

    const synced = await home.json(['sync', 'all']);
    expect([synced.code, synced.document.verdict]).toEqual([0, 'complete']);
    await expectLists(database.pool, sandbox.truth);

    const first = await home.json(['nightly']);
    expect([first.code, first.document.verdict]).toEqual([0, 'complete']);
    expect(first.document.evidence).toMatchObject({
      exports: { parties: 60, failed: 0 },
    });
    sandbox.advance(HOUR_MS * 30);
    const second = await home.run(['nightly']);
    expect(second.code).toBe(0);
    expect(second.stdout).toMatch(/^✓ nightly now: complete/);
    await expectLists(database.pool, sandbox.truth);
    await expectLedgers(database.pool, sandbox.truth, home.objectsDir);
    const verified = await home.json(['verify', '--deep']);
    expect([verified.code, verified.document.verdict]).toEqual([0, 'complete']);
    expect(await strayObjects(database.pool, home.objectsDir)).toEqual([]);
    expect(await home.spooled()).toEqual([]);

    if (redisUrl === undefined) await expectLakeCommands(home);
    const report = await newestReport(home);
    const compared = await home.json(['verify', '--against', report]);
    expect([
      compared.code,
      compared.document.evidence?.['against'],
    ]).toMatchObject([0, { report, problemCount: 0, lists: 'same' }]);

    await using empty = await openFreshDatabase();
    const refused = await home.run(['load', '--all'], {
      DATABASE_URL: empty.url,
      SOURCE_URL: undefined,
    });
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/belongs to another mirror.*--take-over/);
    const rebuilt = await home.json(['load', '--all', '--take-over'], {
      DATABASE_URL: empty.url,
      SOURCE_URL: undefined,
    });
    expect([rebuilt.code, rebuilt.document.verdict]).toEqual([0, 'complete']);
    await expectLedgers(empty.pool, sandbox.truth, home.objectsDir);
    const brought = await home.json(['runs'], {
      DATABASE_URL: empty.url,
      SOURCE_URL: undefined,
    });
    const nights = (
      brought.document as unknown as { kind: string; verdict: string }[]
    ).filter(({ kind }) => kind === 'nightly');
    expect(nights.map(({ verdict }) => verdict)).toEqual([
      'complete',
      'complete',
    ]);
    await falsifyDigests(empty.pool);
    const less = await home.json(['verify', '--against', report], {
      DATABASE_URL: empty.url,
      SOURCE_URL: undefined,
    });
    expect([less.code, JSON.stringify(less.document.evidence)]).toEqual([
      2,
      expect.stringContaining('LEDGER_DIFFERS'),
    ]);
  });
});
