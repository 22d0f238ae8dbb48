/** Resume state in Redis: the contract, and what happens while Redis is away. */
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { openRedisState } from '../../src/state/redis-state.ts';
import { tolerateOutages } from '../../src/state/resume-state.ts';
import { freshRedis, startOwnRedis } from '../support/servers/redis.ts';
import { waitFor } from '../support/wait-for.ts';
import { recordingLog } from './recording-log.ts';
import { resumeStateContract } from './resume-state-contract.ts';

const redis = await freshRedis();
const ignore = (): undefined => undefined;
/**
 * A few seconds, and what a busy machine adds: not the minute that a client's own limits
 * would let it wait.
 */
const SECONDS_MS = 25_000;

resumeStateContract('Redis', (prefix) =>
  openRedisState(redis.url, `${redis.prefix}:${prefix}`, ignore),
);

test('a Redis that is away is unreachable soon, and is used again when it is back', async () => {
  await using own = await startOwnRedis();
  const state = openRedisState(own.url, 'p', ignore);
  await state.set('k', 1, 60_000);
  await own.kill();
  const startedMs = performance.now();
  const outcomes = await Promise.allSettled([
    state.get('k'),
    state.set('k', 2, 60_000),
    state.reserve('b', 10),
  ]);
  expect(
    outcomes.map((outcome) => outcome.status === 'rejected' && outcome.reason),
  ).toEqual(
    Array.from({ length: 3 }, () =>
      expect.objectContaining({
        name: 'UnreachableError',
        code: 'STATE_UNREACHABLE',
      }),
    ),
  );
  expect(performance.now() - startedMs).toBeLessThan(SECONDS_MS);
  await own.start();
  await waitFor(
    () =>
      state.set('k', 3, 60_000).then(
        () => true,
        () => false,
      ),
    { what: 'Redis in use again' },
  );
  expect(await state.get('k')).toBe(3);
  await state.close();
});

test('a Redis that says nothing is given up in seconds, and heard again when it speaks', async () => {
  await using own = await startOwnRedis();
  const state = openRedisState(own.url, 'p', ignore);
  await state.set('k', 1, 60_000);
  own.freeze();
  const startedMs = performance.now();
  await expect(state.get('k')).rejects.toMatchObject({
    code: 'STATE_UNREACHABLE',
  });
  expect(performance.now() - startedMs).toBeLessThan(SECONDS_MS);
  own.thaw();
  const heard = await waitFor(() => state.get('k').catch(() => undefined), {
    what: 'Redis heard again',
  });
  expect(heard).toBe(1);
  await state.close();
});

test('an answer that Redis gives as an error is told by its code', async () => {
  await using own = await startOwnRedis();
  const wrong = openRedisState(own.url, 'p', ignore);
  const admin = new Redis(own.url);
  await admin.lpush('p:state:list', 'x');
  await expect(wrong.get('list')).rejects.toMatchObject({
    name: 'PermanentError',
    code: 'STATE_REDIS_WRONGTYPE',
  });
  await admin.set('p:state:broken', '{');
  expect(await wrong.get('broken')).toBeUndefined();
  await admin.set('p:rate:broken', 'x');
  expect(await wrong.reserve('broken', 1)).toEqual({ waitMs: 0 });
  admin.disconnect();
  await wrong.close();
});

test('a schedule from a clock that was set back does not stop the work', async () => {
  const client = new Redis(redis.url);
  const state = openRedisState(redis.url, redis.prefix, ignore);
  await client.set(`${redis.prefix}:rate:old`, '8000000000000000');
  expect((await state.reserve('old', 1)).waitMs).toBeLessThanOrEqual(600_000);
  client.disconnect();
  await state.close();
});

test('syncs go on through an outage of Redis, which is logged once', async () => {
  await using own = await startOwnRedis();
  const log = recordingLog();
  let nowMs = 0;
  const state = tolerateOutages(
    openRedisState(own.url, 'p', ignore),
    log,
    () => nowMs,
  );
  await state.set('k', 1, 60_000);
  await own.kill();
  expect(await state.get('k')).toBeUndefined();
  await state.set('k', 2, 60_000);
  const waits = [];
  for (let index = 0; index < 5; index += 1)
    waits.push((await state.reserve('b', 40)).waitMs);
  // A quarter of the rate, on a clock that stands.
  expect(waits).toEqual([0, 100, 200, 300, 400]);
  expect(log.lines.map(({ message }) => message)).toEqual([
    'The resume state is unavailable; work continues without it',
  ]);
  await own.start();
  await waitFor(
    async () => {
      // An outage's store is asked again once a second.
      nowMs += 1_000;
      await state.set('k', 3, 60_000);
      return (await state.get('k')) === 3;
    },
    { what: 'hints again' },
  );
  expect(log.lines.map(({ level }) => level)).toEqual(['warn', 'info']);
  await state.close();
});
