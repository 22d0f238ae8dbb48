/**
 * What dead processes leave: who takes it up again, who closes it, and after how long a
 * silence.
 */
import { beforeEach, describe, expect, test } from 'vitest';
import {
  closeAbandoned,
  findOpenNightly,
  reconcileRuns,
} from '../../src/runs/enqueue.ts';
import type { NewRun } from '../../src/runs/store/run-store.ts';
import { freshDatabase } from '../support/database.ts';
import { type JobWorld, openJobWorld } from './stages-double.ts';
import { emptyRuns, silenceRuns } from '../support/mirror-arrange.ts';
import { numberedNames } from '../support/numbered-names.ts';

const database = await freshDatabase({ isMigrated: true });
const nextName = numberedNames('left');
const openWorld = (): Promise<JobWorld> =>
  openJobWorld(database.url, nextName(), {});

beforeEach(async () => {
  await emptyRuns(database.pool);
});

interface Left extends NewRun {
  /** Since its process renewed it the last time. */
  readonly silentSeconds: number;
}

/** A run that was begun and not renewed since. */
async function leave(
  world: JobWorld,
  { silentSeconds, ...fresh }: Left,
): Promise<string> {
  const { runId } = await world.deps.runs.create(fresh);
  await world.deps.runs.start(runId);
  await silenceRuns(database.pool, silentSeconds, runId);
  return runId;
}

async function childOf(
  world: JobWorld,
  isParentOver: boolean,
): Promise<NewRun> {
  const parent = await world.deps.runs.create({
    kind: 'nightly',
    subject: 'now',
    scheduleKey: 'nightly parent',
  });
  await world.deps.runs.start(parent.runId);
  if (isParentOver) await world.deps.runs.finish(parent.runId, 'complete', {});
  return { kind: 'sync', subject: 'parties', parentRunId: parent.runId };
}

/** `open`, or the code with which it was closed. */
async function fateOf(world: JobWorld, runId: string): Promise<unknown> {
  const run = await world.deps.runs.get(runId);
  if (run?.state !== 'done') return 'open';
  return [
    run.verdict,
    (run.evidence['error'] as { code?: string } | undefined)?.code,
  ];
}

const CLOSED = ['failed', 'ABANDONED'];
const SYNC: NewRun = { kind: 'sync', subject: 'parties' };

describe('a command, where no worker is running', () => {
  test.each<readonly [string, NewRun, number, unknown]>([
    ['closes a run of a dead command', SYNC, 80, CLOSED],
    [
      'closes a nightly run of a dead command',
      { kind: 'nightly', subject: 'now' },
      80,
      CLOSED,
    ],
    ['leaves a run open that its queue may try again', SYNC, 35, 'open'],
    [
      'leaves a nightly run of the schedule open',
      { kind: 'nightly', subject: 'scheduled', scheduleKey: 'nightly x' },
      80,
      'open',
    ],
    [
      'leaves an order of the read API open',
      { kind: 'export', subject: 'ab', params: { isOrdered: true } },
      80,
      'open',
    ],
  ])('%s', async (_what, fresh, silentSeconds, fate) => {
    await using world = await openWorld();
    const runId = await leave(world, { ...fresh, silentSeconds });
    await closeAbandoned(world.deps);
    expect(await fateOf(world, runId)).toEqual(fate);
  });

  test.each([
    [true, CLOSED],
    [false, 'open'],
  ])(
    'closes a part of another run where that one is over: %s',
    async (isParentOver, fate) => {
      await using world = await openWorld();
      const runId = await leave(world, {
        ...(await childOf(world, isParentOver)),
        silentSeconds: 80,
      });
      await closeAbandoned(world.deps);
      expect(await fateOf(world, runId)).toEqual(fate);
    },
  );

  test('begins a nightly run once the last one has fallen silent, and not before', async () => {
    await using world = await openWorld();
    const runId = await leave(world, {
      kind: 'nightly',
      subject: 'now',
      silentSeconds: 0,
    });
    expect(await findOpenNightly(world.deps, false)).toMatchObject({ runId });
    await silenceRuns(database.pool, 11);
    expect(await findOpenNightly(world.deps, false)).toBeUndefined();
    expect(await fateOf(world, runId)).toEqual(CLOSED);
  });
});

describe('a worker', () => {
  test.each<readonly [string, NewRun, number, unknown, number]>([
    ['queues a run again whose process is gone', SYNC, 40, 'open', 1],
    ['leaves a run alone that was renewed lately', SYNC, 5, 'open', 0],
    [
      'closes a verify, which nobody can resume',
      { kind: 'verify', subject: 'deep' },
      40,
      CLOSED,
      0,
    ],
  ])('%s', async (_what, fresh, silentSeconds, fate, jobs) => {
    await using world = await openWorld();
    const runId = await leave(world, { ...fresh, silentSeconds });
    await reconcileRuns(world.deps);
    expect(await fateOf(world, runId)).toEqual(fate);
    expect((await world.queues.counts('sync'))['prioritized']).toBe(jobs);
  });

  test.each([
    [true, CLOSED],
    [false, 'open'],
  ])(
    'leaves runs below another to it, unless it is over: %s',
    async (isParentOver, fate) => {
      await using world = await openWorld();
      const runId = await leave(world, {
        ...(await childOf(world, isParentOver)),
        silentSeconds: 40,
      });
      await reconcileRuns(world.deps);
      expect(await fateOf(world, runId)).toEqual(fate);
      expect((await world.queues.counts('sync'))['prioritized']).toBe(0);
    },
  );
});
