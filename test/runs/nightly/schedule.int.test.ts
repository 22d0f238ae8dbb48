/** Scheduled times that were missed: when they are made up, and when not. */
import { beforeEach, describe, expect, it } from 'vitest';
import {
  lastScheduledMs,
  makeUpMissed,
  SCHEDULED,
} from '../../../src/runs/nightly/start-scheduled.ts';
import { freshDatabase } from '../../support/database.ts';
import {
  addRun,
  emptyRuns,
  removeQueuedRuns,
  type Row,
  setMirrorCreatedAt,
} from '../../support/mirror-arrange.ts';
import { openJobWorld } from '../stages-double.ts';

const database = await freshDatabase({ isMigrated: true });
const { pool } = database;
const SCHEDULES = {
  nightly: { pattern: '0 2 * * *', tz: 'UTC' },
  audit: { pattern: '0 4 * * 0', tz: 'UTC' },
};
const MORNING_MS = Date.UTC(2026, 10, 21, 8);
let worlds = 0;
const openWorld = (): ReturnType<typeof openJobWorld> =>
  openJobWorld(database.url, `schedule-${(worlds += 1)}`, {});

beforeEach(async () => {
  await emptyRuns(pool);
  await setMirrorCreatedAt(pool, '2026-01-01');
});

/** Over, unless the row says otherwise. */
function addNight(row: Row): Promise<string> {
  return addRun(pool, { kind: 'nightly', subject: 'now', state: 'done', ...row });
}

describe('a missed scheduled time', () => {
  it('is made up once', async () => {
    await using world = await openWorld();
    await makeUpMissed(SCHEDULED.nightly, SCHEDULES, world.deps, MORNING_MS);
    await makeUpMissed(SCHEDULED.nightly, SCHEDULES, world.deps, MORNING_MS);
    const nights = await world.deps.runs.list({ kind: 'nightly', limit: 10 });
    expect(nights.map((night) => night.scheduleKey)).toEqual([
      'nightly 2026-11-21T02:00:00.000Z',
    ]);
    expect((await world.queues.counts('nightly'))['prioritized']).toBe(1);
  });

  it.each([
    [
      'a run came after it',
      () => addNight({ verdict: 'complete', finished_at: '2026-11-21T02:30Z' }),
    ],
    ['a run is still going', () => addNight({ state: 'running' })],
    ['the mirror is younger', () => setMirrorCreatedAt(pool, '2026-11-21T03:00Z')],
  ])('is not made up where %s', async (_why, arrange) => {
    await arrange();
    await using world = await openWorld();
    await makeUpMissed(SCHEDULED.nightly, SCHEDULES, world.deps, MORNING_MS);
    expect(
      await world.deps.runs.list({ kind: 'nightly', states: ['queued'], limit: 10 }),
    ).toEqual([]);
  });

  it('is tried again after a run that failed, with growing waits, until one did not', async () => {
    await using world = await openWorld();
    const fail = (at: string): Promise<unknown> =>
      addNight({ subject: 'scheduled', verdict: 'failed', finished_at: at });
    const queued = async (at: string): Promise<readonly (string | null)[]> => {
      await makeUpMissed(SCHEDULED.nightly, SCHEDULES, world.deps, Date.parse(at));
      return (
        await world.deps.runs.list({ kind: 'nightly', states: ['queued'], limit: 10 })
      ).map(({ scheduleKey }) => scheduleKey);
    };
    await fail('2026-11-21T02:02:00Z');
    expect(await queued('2026-11-21T02:06:00Z')).toEqual([]);
    expect(await queued('2026-11-21T02:07:30Z')).toEqual([
      'nightly 2026-11-21T02:00:00.000Z again 1',
    ]);
    await removeQueuedRuns(pool);
    await fail('2026-11-21T02:08:00Z');
    expect(await queued('2026-11-21T02:14:00Z')).toEqual([]);
    expect(await queued('2026-11-21T02:18:30Z')).toEqual([
      'nightly 2026-11-21T02:00:00.000Z again 2',
    ]);
    await removeQueuedRuns(pool);
    await addNight({ verdict: 'incomplete', finished_at: '2026-11-21T02:30Z' });
    expect(await queued('2026-11-21T12:00:00Z')).toEqual([]);
  });

  it('is made up once for each list where it was an audit, and not where one was done since', async () => {
    const { parties, checkpoints } = SCHEDULED;
    const afterMs = Date.UTC(2026, 10, 23, 8);
    for (const [list, full] of [
      ['parties', true],
      ['checkpoints', false],
    ] as const)
      await addNight({
        kind: 'sync',
        subject: list,
        params: { full },
        verdict: 'complete',
        finished_at: '2026-11-22T05:00Z',
      });
    await using world = await openWorld();
    for (const audit of [parties, checkpoints, parties, checkpoints])
      await makeUpMissed(audit, SCHEDULES, world.deps, afterMs);
    const made = await world.deps.runs.list({
      kind: 'sync',
      states: ['queued'],
      limit: 10,
    });
    expect(made.map(({ scheduleKey, params }) => [scheduleKey, params['full']])).toEqual([
      ['audit checkpoints 2026-11-22T04:00:00.000Z', true],
    ]);
  });

  it('is not called missed before the queue had its time', async () => {
    await using world = await openWorld();
    await makeUpMissed(
      SCHEDULED.nightly,
      SCHEDULES,
      world.deps,
      Date.UTC(2026, 10, 21, 2, 1),
    );
    expect(await world.deps.runs.list({ kind: 'nightly', limit: 10 })).toEqual([]);
  });

  it('is found in its own time zone, also where the clocks change', () => {
    const berlin = { pattern: '30 2 * * *', tz: 'Europe/Berlin' };
    expect(
      new Date(lastScheduledMs(berlin, Date.UTC(2026, 6, 1, 12))).toISOString(),
    ).toBe('2026-07-01T00:30:00.000Z');
    expect(
      new Date(lastScheduledMs(berlin, Date.UTC(2026, 11, 1, 12))).toISOString(),
    ).toBe('2026-12-01T01:30:00.000Z');
  });
});
