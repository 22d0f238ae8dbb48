/**
 * What Redis holds, what its loss costs, and who shares it: a server of the test's own,
 * which is flushed.
 */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { enqueueRun, reconcileRuns } from '../../src/runs/enqueue.ts';
import type { Run } from '../../src/runs/store/run-store.ts';
import { startSandbox, type Sandbox } from '../support/sandbox.ts';
import { keepSchedules } from '../../src/runs/nightly/schedules.ts';
import type { Schedules } from '../../src/time/scheduled-times.ts';
import { type RealApp, startRealApp } from '../app/real-app.ts';
import { startOwnRedis } from '../support/servers/redis.ts';
import { waitFor } from '../support/wait-for.ts';

const redis = await startOwnRedis();
const client = new Redis(redis.url);
const schedules: Schedules = {
  nightly: { pattern: '0 2 1 1 *', tz: 'UTC' },
  audit: { pattern: '0 4 1 1 *', tz: 'UTC' },
};
let sandbox: Sandbox;
let first: RealApp;
let second: RealApp;

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 3,
    entriesMean: 3,
    rateLimit: 'none',
    seed: 'redis-lost',
  });
  const env = { SOURCE_URL: sandbox.url, REDIS_URL: redis.url };
  first = await startRealApp(env, { isWorking: false });
  second = await startRealApp(env, { isWorking: false });
});

afterAll(async () => {
  await first[Symbol.asyncDispose]();
  await second[Symbol.asyncDispose]();
  client.disconnect();
  await redis[Symbol.asyncDispose]();
  await sandbox.stop();
});

async function scheduled(): Promise<string[]> {
  const keys = await client.keys('*:repeat');
  const found = await Promise.all(
    keys.map((key) => client.zrange(key, '0', '-1')),
  );
  return found.flat().toSorted();
}

describe('a Redis that was flushed', () => {
  test('gets its schedules back, by whoever works, and keeps those that are there', async () => {
    const { queues, jobs } = first.app;
    const deps = { queues, jobs, schedules };
    await keepSchedules(deps);
    expect(await scheduled()).toEqual([
      'audit-checkpoints',
      'audit-parties',
      'nightly',
    ]);
    const before = await client.keys('*repeat*');
    await keepSchedules(deps);
    expect((await client.keys('*repeat*')).toSorted()).toEqual(
      before.toSorted(),
    );
    await client.flushall();
    expect(await scheduled()).toEqual([]);
    await keepSchedules(deps);
    expect(await scheduled()).toEqual([
      'audit-checkpoints',
      'audit-parties',
      'nightly',
    ]);
  });

  test('has a changed schedule replaced, not doubled', async () => {
    const { queues, jobs } = first.app;
    const changed = {
      ...schedules,
      nightly: { pattern: '30 3 1 1 *', tz: 'Europe/Berlin' },
    };
    await keepSchedules({ queues, jobs, schedules: changed });
    const [key = ''] = await client.keys('*:repeat:nightly');
    expect(await client.hgetall(key)).toMatchObject({
      pattern: '30 3 1 1 *',
      tz: 'Europe/Berlin',
    });
    expect(await scheduled()).toEqual([
      'audit-checkpoints',
      'audit-parties',
      'nightly',
    ]);
  });

  test('costs a waiting run its job, which a worker queues again; a job that is there is not doubled', async () => {
    const { jobs, queues, warehouse } = second.app;
    const run = await jobs.runs.create({
      kind: 'sync',
      subject: 'checkpoints',
    });
    await enqueueRun(run, jobs);
    await warehouse.pool.query(
      `update mirror.runs set queued_at = queued_at - interval '1 minute'`,
    );
    await reconcileRuns(jobs);
    expect(await queues.open('sync')).toBe(1);
    await client.flushall();
    expect(await queues.open('sync')).toBe(0);
    await reconcileRuns(jobs);
    expect(await queues.open('sync')).toBe(1);
    await jobs.runs.requestCancel(run.runId);
  });
});

describe('two mirrors of one source on one Redis', () => {
  test('work their own jobs only: what one queues, the other does not take', async () => {
    await client.flushall();
    first.app.jobWorker.start();
    const run = await second.app.jobs.runs.create({
      kind: 'sync',
      subject: 'parties',
    });
    await enqueueRun(run, second.app.jobs);
    const own = await first.app.jobs.runs.create({
      kind: 'sync',
      subject: 'parties',
    });
    await enqueueRun(own, first.app.jobs);
    const ended = (of: RealApp, { runId }: Run): Promise<Run> =>
      waitFor(
        async () => {
          const now = await of.app.jobs.runs.get(runId);
          return now?.state === 'done' ? now : undefined;
        },
        { what: 'the run to end' },
      );
    expect((await ended(first, own)).verdict).toBe('complete');
    expect((await second.app.jobs.runs.get(run.runId))?.state).toBe('queued');
    expect(await second.app.queues.open('sync')).toBe(1);
    second.app.jobWorker.start();
    expect((await ended(second, run)).verdict).toBe('complete');
  });
});
