/**
 * Redis is away for more than a minute in the middle of a sync: resume points and the
 * shared rate do without it, the sync does not wait for it, and uses it again once it is
 * back. The clock of the state runs ahead, so that the minute passes in less.
 */
import { afterAll, expect, test } from 'vitest';
import { startSandbox } from '../../support/sandbox.ts';
import { openSource } from '../../../src/source/source-client.ts';
import { openRedisState } from '../../../src/state/redis-state.ts';
import { tolerateOutages } from '../../../src/state/resume-state.ts';
import { recordingLog } from '../../state/recording-log.ts';
import { freshDatabase } from '../../support/database.ts';
import { startOwnRedis } from '../../support/servers/redis.ts';
import { waitFor } from '../../support/wait-for.ts';
import { localState, sourceConfig } from '../../support/source-config.ts';
import { openMigrated, SyncWorld } from '../sync-world.ts';
import { storedResumePoint } from '../../support/mirror-state.ts';

const PAGE_MS = 5_000;
const AWAY_FROM_PAGE = 5;
const AWAY_TO_PAGE = 20;

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new SyncWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());

test('a sync goes on while Redis is away for more than a minute', async () => {
  await using redis = await startOwnRedis();
  await using sandbox = await startSandbox({ parties: 400, rateLimit: 'none' });
  const log = recordingLog();
  let aheadMs = 0;
  const inner = openRedisState(redis.url, 'away', () => undefined);
  const state = tolerateOutages(inner, log, () => performance.now() + aheadMs);
  /** Asks it, which happens once a second at most. */
  const isBack = async (): Promise<boolean> => {
    aheadMs += 1_000;
    await state.get('list-sync:parties');
    return log.lines.length === 2;
  };
  await using source = openSource(sourceConfig(sandbox.url), {
    ...localState(),
    rate: state,
  });
  let pages = 0;
  const { verdict, evidence } = await world.sync(
    source.lists,
    { list: 'parties' },
    {
      deps: {
        resumePoints: state,
        failpoint: async (label) => {
          if (label !== 'committed') return;
          pages += 1;
          aheadMs += PAGE_MS;
          if (pages === AWAY_FROM_PAGE) await redis.kill();
          if (pages === AWAY_TO_PAGE) await redis.start();
          // The client connects again in its own time; there must be pages left for it.
          if (pages === AWAY_TO_PAGE + 1)
            await waitFor(isBack, { what: 'Redis in use again' });
        },
      },
    },
  );
  const hint = await state.get('list-sync:parties');
  await state.close();
  expect(evidence).toMatchObject({ missing: [], doubts: [], rows: '400' });
  expect(verdict).toBe('complete');
  expect(log.lines).toMatchObject([
    {
      level: 'warn',
      message: 'The resume state is unavailable; work continues without it',
    },
    { level: 'info', message: 'Resume state is back' },
  ]);
  expect(log.lines[1]?.fields['awayMs']).toBeGreaterThan(60_000);
  expect(hint).toEqual(await storedResumePoint(world.pool));
});
