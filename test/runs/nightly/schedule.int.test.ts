/**
 * Scheduled times that were missed or failed: when a run is made up for them, and when
 * not.
 */
import { beforeEach, describe, expect, test } from 'vitest';
import {
  findMissedMs,
  makeUpMissed,
} from '../../../src/runs/nightly/missed-times.ts';
import {
  claimScheduled,
  keepSchedules,
  SCHEDULED,
  type ScheduledRun,
} from '../../../src/runs/nightly/schedules.ts';
import type { JobDeps } from '../../../src/runs/job.ts';
import {
  lastScheduledMs,
  nextScheduledMs,
} from '../../../src/time/scheduled-times.ts';
import { freshDatabase } from '../../support/database.ts';
import {
  addRun,
  emptyRuns,
  removeQueuedRuns,
  type Row,
  setMirrorCreatedAt,
  setScheduleSince,
} from '../../support/mirror-arrange.ts';
import { type JobWorld, openJobWorld } from '../stages-double.ts';

const database = await freshDatabase({ isMigrated: true });
const { pool } = database;
const SCHEDULES = {
  nightly: { pattern: '0 2 * * *', tz: 'UTC' },
  audit: { pattern: '0 4 * * 0', tz: 'UTC' },
};
const MORNING_MS = Date.UTC(2026, 10, 21, 8);
const DUE_KEY = 'nightly 2026-11-21T02:00:00.000Z';
const DAY_MS = 86_400_000;

beforeEach(async () => {
  await emptyRuns(pool);
  await setMirrorCreatedAt(pool, '2026-01-01');
  await setScheduleSince(pool, 'nightly', SCHEDULES.nightly, '2026-01-01');
  await setScheduleSince(pool, 'audit', SCHEDULES.audit, '2026-01-01');
});

describe('makeUpMissed', () => {
  test('makeUpMissed begins one run for a missed time, however often it is called', async () => {
    await using world = await openWorld();
    await makeUp(world);
    await makeUp(world);
    expect(await queuedKeys(world)).toEqual([DUE_KEY]);
    expect((await world.queues.counts('nightly'))['prioritized']).toBe(1);
  });

  test.each([
    [
      'a run came after the time',
      () => addNight({ verdict: 'complete', finished_at: '2026-11-21T02:30Z' }),
    ],
    ['a run is still going', () => addNight({ state: 'running' })],
    [
      'the mirror is younger',
      () => setMirrorCreatedAt(pool, '2026-11-21T03:00Z'),
    ],
    [
      'the schedule was set after the time',
      () =>
        setScheduleSince(
          pool,
          'nightly',
          SCHEDULES.nightly,
          '2026-11-21T07:59Z',
        ),
    ],
    [
      'another schedule is in force',
      () =>
        setScheduleSince(
          pool,
          'nightly',
          { pattern: '0 3 * * *', tz: 'UTC' },
          '2026-01-01',
        ),
    ],
  ])('makeUpMissed begins nothing if %s', async (_why, arrange) => {
    await arrange();
    await using world = await openWorld();
    await makeUp(world);
    expect(await queuedKeys(world)).toEqual([]);
    expect(
      await findMissedMs(SCHEDULES.nightly, world.deps.db, MORNING_MS),
    ).toBe(undefined);
  });

  test('makeUpMissed is not silenced by a run or a mirror of the future', async () => {
    await addNight({ verdict: 'complete', finished_at: '2026-11-22T02:30Z' });
    await setMirrorCreatedAt(pool, '2027-11-21');
    await using world = await openWorld();
    await makeUp(world);
    expect(await queuedKeys(world)).toEqual([DUE_KEY]);
  });

  test('makeUpMissed is not silenced by a schedule that a clock recorded that was ahead', async () => {
    const tomorrow = new Date(MORNING_MS + DAY_MS).toISOString();
    await setScheduleSince(pool, 'nightly', SCHEDULES.nightly, tomorrow);
    await using world = await openWorld();
    await makeUp(world);
    expect(await queuedKeys(world)).toEqual([DUE_KEY]);
  });

  test('makeUpMissed tries a failed night again after 5, 10 and 20 minutes, then hourly', async () => {
    await using world = await openWorld();
    let failedMs = Date.UTC(2026, 10, 21, 2, 2);

    for (const [index, waitMinutes] of [5, 10, 20, 60, 60].entries()) {
      const finishedAt = new Date(failedMs).toISOString();
      const slot = index === 0 ? DUE_KEY : `${DUE_KEY} again ${index}`;
      await addNight({ slot, verdict: 'failed', finished_at: finishedAt });

      const dueMs = failedMs + waitMinutes * 60_000;
      await makeUp(world, dueMs - 1_000);
      expect(await queuedKeys(world)).toEqual([]);
      await makeUp(world, dueMs);
      expect(await queuedKeys(world)).toEqual([
        `${DUE_KEY} again ${index + 1}`,
      ]);

      await removeQueuedRuns(pool);
      failedMs = dueMs + 60_000;
    }

    await addNight({ verdict: 'incomplete', finished_at: '2026-11-21T05:30Z' });
    await makeUp(world, Date.UTC(2026, 10, 21, 12));
    expect(await queuedKeys(world)).toEqual([]);
  });

  test('makeUpMissed tries a night again that ended because the source was away', async () => {
    await using world = await openWorld();
    await addNight({
      slot: DUE_KEY,
      verdict: 'incomplete',
      evidence: { sourceAway: { code: 'SOURCE_STATUS' } },
      finished_at: '2026-11-21T02:30Z',
    });
    await makeUp(world, Date.UTC(2026, 10, 21, 2, 36));
    expect(await queuedKeys(world)).toEqual([`${DUE_KEY} again 1`]);
  });

  test('makeUpMissed gives a time its own run if the night before failed behind it', async () => {
    await using world = await openWorld();
    await addNight({
      slot: 'nightly 2026-11-20T02:00:00.000Z',
      verdict: 'failed',
      finished_at: '2026-11-21T02:01Z',
    });
    await makeUp(world, Date.UTC(2026, 10, 21, 2, 10));
    // A job that the queue delivers later finds it.
    expect(await queuedKeys(world)).toEqual([DUE_KEY]);
  });

  test('makeUpMissed makes up the audit of the list that was not audited since', async () => {
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
      await makeUp(world, afterMs, audit);
    const made = await world.deps.runs.list({
      kind: 'sync',
      states: ['queued'],
      limit: 10,
    });
    expect(
      made.map(({ scheduleKey, params }) => [scheduleKey, params['full']]),
    ).toEqual([['audit checkpoints 2026-11-22T04:00:00.000Z', true]]);
  });

  test('makeUpMissed waits as much longer for the queue as the clock of its worker is behind', async () => {
    await using world = await openWorld();
    const lateMs = 12 * 60_000;
    const at = (minute: number) =>
      makeUpMissed(
        SCHEDULED.nightly,
        SCHEDULES,
        world.deps,
        Date.UTC(2026, 10, 21, 2, minute),
        lateMs,
      );
    await at(11);
    expect(await queuedKeys(world)).toEqual([]);
    await at(12);
    expect(await queuedKeys(world)).toEqual([DUE_KEY]);
  });

  test('makeUpMissed names the times before the last one that had no run', async () => {
    await addNight({ verdict: 'complete', finished_at: '2026-11-18T02:30Z' });
    await using world = await openWorld();
    const warned: unknown[] = [];
    const log: JobDeps['log'] = {
      ...world.deps.log,
      warn: (...line: readonly unknown[]) => void warned.push(line[0]),
    };
    await makeUpMissed(
      SCHEDULED.nightly,
      SCHEDULES,
      { ...world.deps, log },
      MORNING_MS,
    );
    expect(warned).toEqual([
      {
        scheduleKey: DUE_KEY,
        passedOver: ['2026-11-19T02:00:00.000Z', '2026-11-20T02:00:00.000Z'],
      },
    ]);
  });

  test('makeUpMissed leaves a time to the queue for two minutes', async () => {
    await using world = await openWorld();
    await makeUp(world, Date.UTC(2026, 10, 21, 2, 1));
    expect(await queuedKeys(world)).toEqual([]);
  });
});

describe('keepSchedules', () => {
  test('keepSchedules makes a changed schedule count from now on, and an equal one as before', async () => {
    await using world = await openWorld();
    const { deps, queues } = world;
    // A time that has just come is left to the queue, so look an hour after the next one.
    const missed = () =>
      findMissedMs(
        SCHEDULES.nightly,
        deps.db,
        nextScheduledMs(SCHEDULES.nightly, Date.now()) + DAY_MS / 24,
      );

    await keepSchedules({ queues, jobs: deps, schedules: SCHEDULES });
    expect(
      await findMissedMs(SCHEDULES.nightly, deps.db, MORNING_MS),
    ).toBeDefined();

    const changed = {
      ...SCHEDULES,
      nightly: { pattern: '0 3 * * *', tz: 'UTC' },
    };
    await keepSchedules({ queues, jobs: deps, schedules: changed });
    await keepSchedules({ queues, jobs: deps, schedules: SCHEDULES });
    expect(await findMissedMs(SCHEDULES.nightly, deps.db, Date.now())).toBe(
      undefined,
    );
    expect(await missed()).toBeDefined();
  });
});

describe('claimScheduled', () => {
  test('claimScheduled returns the same run for a time, and another if that ended before it', async () => {
    await using world = await openWorld();
    const dueMs = Date.now();
    const claim = () =>
      claimScheduled(SCHEDULED.nightly, undefined, world.deps, { dueMs });

    const first = await claim();
    expect(await claim()).toBe(first);
    await pool.query(
      `update mirror.runs set state = 'done', verdict = 'complete',
         finished_at = clock_timestamp() + interval '1 hour'`,
    );
    const second = await claim();
    expect(second).not.toBe(first);
    expect(await claim()).toBe(second);
  });

  test('claimScheduled begins nothing before its time by the clock of the database', async () => {
    await using world = await openWorld();
    const dueMs = Date.now() + 10 * 60_000;
    await expect(
      claimScheduled(SCHEDULED.nightly, undefined, world.deps, { dueMs }),
    ).rejects.toMatchObject({ code: 'NOT_DUE_YET', retryAfterMs: 60_000 });
    expect(await world.deps.runs.list({ limit: 10 })).toEqual([]);
  });

  test('claimScheduled begins nothing for a time that is older than its schedule', async () => {
    await using world = await openWorld();
    const { tz } = SCHEDULES.nightly;
    const dueMs = lastScheduledMs(SCHEDULES.nightly, Date.now());
    // A worker whose clock is behind puts this time into the queue.
    const now = new Date().toISOString();
    await setScheduleSince(pool, 'nightly', SCHEDULES.nightly, now);
    const claim = (ms: number) =>
      claimScheduled(SCHEDULED.nightly, undefined, world.deps, { dueMs: ms });
    expect(await claim(dueMs)).toBeUndefined();
    expect(await world.deps.runs.list({ limit: 10 })).toEqual([]);

    // The queue delivers a time of the schedule before late, and that counts.
    const other = { pattern: '1 2 * * *', tz };
    await setScheduleSince(pool, 'nightly', other, now);
    expect(await claim(dueMs)).toBeDefined();
  });

  test('claimScheduled begins a time whose schedule was recorded by a clock that was ahead', async () => {
    await using world = await openWorld();
    const dueMs = lastScheduledMs(SCHEDULES.nightly, Date.now());
    const tomorrow = new Date(Date.now() + DAY_MS).toISOString();
    await setScheduleSince(pool, 'nightly', SCHEDULES.nightly, tomorrow);
    const run = await claimScheduled(SCHEDULED.nightly, undefined, world.deps, {
      dueMs,
    });
    expect(run).toBeDefined();
  });

  test('claimScheduled names the times before, if a clock that is behind has hidden them', async () => {
    await using world = await openWorld();
    const dueMs = lastScheduledMs(SCHEDULES.nightly, Date.now());
    const daysBefore = (days: number) =>
      new Date(dueMs - days * DAY_MS).toISOString();
    await addNight({
      verdict: 'complete',
      finished_at: new Date(dueMs - 3 * DAY_MS + 60_000).toISOString(),
    });
    const warned: unknown[] = [];
    const log: JobDeps['log'] = {
      ...world.deps.log,
      warn: (...line: readonly unknown[]) => void warned.push(line[0]),
    };
    await claimScheduled(
      SCHEDULED.nightly,
      undefined,
      { ...world.deps, log },
      { dueMs },
    );
    expect(warned).toEqual([
      {
        scheduleKey: `nightly ${daysBefore(0)}`,
        passedOver: [daysBefore(2), daysBefore(1)],
      },
    ]);
  });
});

let worlds = 0;

function openWorld(): Promise<JobWorld> {
  worlds += 1;
  return openJobWorld(database.url, `schedule-${worlds}`, {});
}

function makeUp(
  world: JobWorld,
  nowMs = MORNING_MS,
  scheduled: ScheduledRun = SCHEDULED.nightly,
): Promise<void> {
  return makeUpMissed(scheduled, SCHEDULES, world.deps, nowMs);
}

async function queuedKeys(
  world: JobWorld,
): Promise<readonly (string | null)[]> {
  const queued = await world.deps.runs.list({
    kind: 'nightly',
    states: ['queued'],
    limit: 10,
  });
  return queued.map(({ scheduleKey }) => scheduleKey);
}

/** Over, unless the row says otherwise. */
function addNight(row: Row): Promise<string> {
  return addRun(pool, {
    kind: 'nightly',
    subject: 'now',
    state: 'done',
    ...row,
  });
}
