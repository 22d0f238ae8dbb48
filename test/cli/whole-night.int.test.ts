/** The main job through the real binary, on both queue backends: afterwards the mirror holds the books. */
import { describe, expect, test } from 'vitest';
import { startSandbox } from '../../src/sandbox/server.ts';
import { openFreshDatabase } from '../support/database.ts';
import { freshRedis } from '../support/redis.ts';
import { expectLedgers, expectLists, strayObjects } from './as-the-books.ts';
import { openHome } from './mirror-home.ts';

const redis = await freshRedis();
const HOUR_MS = 3_600_000;

describe.concurrent.each([
  ['in Postgres', undefined],
  ['in Redis', redis.url],
])('queues %s', (_, redisUrl) => {
  test('lists, ledgers, load, lake and sums agree with the books, night after night', async () => {
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
    await expectLists(database.pool, sandbox.books);

    const first = await home.json(['nightly']);
    expect([first.code, first.document.verdict]).toEqual([0, 'complete']);
    expect(first.document.evidence).toMatchObject({ exports: { parties: 60, failed: 0 } });
    sandbox.advance(HOUR_MS * 30);
    const second = await home.run(['nightly']);
    expect(second.code).toBe(0);
    expect(second.stdout).toMatch(/^✓ nightly now: complete/);
    await expectLists(database.pool, sandbox.books);
    await expectLedgers(database.pool, sandbox.books, home.objectsDir);
    const verified = await home.json(['verify', '--deep']);
    expect([verified.code, verified.document.verdict]).toEqual([0, 'complete']);
    expect(await strayObjects(database.pool, home.objectsDir)).toEqual([]);
    expect(await home.spooled()).toEqual([]);

    await using empty = await openFreshDatabase();
    const rebuilt = await home.json(['load', '--all'], { DATABASE_URL: empty.url, SOURCE_URL: undefined });
    expect([rebuilt.code, rebuilt.document.verdict]).toEqual([0, 'complete']);
    await expectLedgers(empty.pool, sandbox.books, home.objectsDir);
  });
});
