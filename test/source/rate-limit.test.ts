import { describe, expect, test } from 'vitest';
import { nowMicros } from '../../src/time/time.ts';
import type { WaitReport } from '../../src/source/ports.ts';
import {
  openRateLimiter,
  SYSTEM_CLOCK,
  WAIT_MAX_MS,
} from '../../src/source/rate-limit.ts';
import { localBans, localRate } from '../support/source-config.ts';
import { InstantClock, NEVER, PARTY, testSource } from './test-source.ts';
import { pageJson, send, serve } from './wire/wire-server.ts';

function limiter(given: { waitMs?: number; banForMs?: number } = {}) {
  const clock = new InstantClock();
  const waits: WaitReport[] = [];
  const bans = localBans();
  const asked: [string, number][] = [];
  const state = {
    reserve: (budget: string, ratePerSecond: number) => {
      asked.push([budget, ratePerSecond]);
      return Promise.resolve({ waitMs: given.waitMs ?? 0 });
    },
  };
  const observer = {
    onRequest: () => undefined,
    onWait: (report: WaitReport) => void waits.push(report),
  };
  const rate = openRateLimiter(7, { rate: state, bans, clock, observer });
  return { rate, clock, waits, bans, asked };
}

describe('the rate limit', () => {
  test('takes one reservation of the shared budget for each request and waits for it', async () => {
    const { rate, clock, waits, asked } = limiter({ waitMs: 120 });
    await rate.pass('parties', NEVER);
    await rate.pass('export', NEVER);
    expect(asked).toEqual([
      ['source', 7],
      ['source', 7],
    ]);
    expect(clock.slept).toEqual([120, 120]);
    expect(waits).toEqual([
      { route: 'parties', reason: 'rate', waitMs: 120 },
      { route: 'export', reason: 'rate', waitMs: 120 },
    ]);
  });

  test('gives up where the wait is longer than a job should sleep', async () => {
    const { rate } = limiter({ waitMs: WAIT_MAX_MS + 1 });
    await expect(rate.pass('parties', NEVER)).rejects.toMatchObject({
      code: 'SOURCE_RATE_LIMITED',
      retryAfterMs: WAIT_MAX_MS + 1,
    });
  });

  test('waits out a ban that another worker has stored', async () => {
    const { rate, bans, waits } = limiter();
    await bans.set(nowMicros() + 60_000_000n);
    await rate.pass('parties', NEVER);
    expect(waits).toMatchObject([{ reason: 'ban' }]);
    expect(waits[0]?.waitMs).toBeGreaterThan(30_000);
  });

  test('never makes a ban shorter', async () => {
    const bans = localBans();
    await bans.set(20n);
    await bans.set(10n);
    expect(await bans.get()).toBe(20n);
  });

  test('takes no reservation for an aborted caller', async () => {
    const { rate, asked } = limiter();
    await expect(
      rate.pass('parties', AbortSignal.abort(new Error('stop'))),
    ).rejects.toThrow('stop');
    expect(asked).toEqual([]);
  });
});

test("the rate limit leaves the source's own budget to refill", async () => {
  const server = await serve((_request, response, nth) =>
    send(response, 200, pageJson('parties', [{ id: PARTY }]), {
      'RateLimit-Remaining': nth === 1 ? '0' : '5',
      'RateLimit-Reset': '3',
    }),
  );
  const source = testSource(server.url);
  const question = { list: 'parties', newestFirst: true, size: 5 } as const;
  await source.lists.page(question, NEVER);
  expect(source.clock.slept).toEqual([]);
  await source.lists.page(question, NEVER);
  await source.lists.page(question, NEVER);
  expect(source.clock.slept).toEqual([3000]);
});

test('the rate limit spaces requests evenly without a shared store', async () => {
  const clock = new InstantClock();
  const rate = localRate(clock);
  const waits = [];
  for (let count = 0; count < 4; count += 1)
    waits.push((await rate.reserve('source', 10)).waitMs);
  expect(waits).toEqual([0, 100, 200, 300]);
  await clock.sleep(1000, NEVER);
  expect(await rate.reserve('source', 10)).toEqual({ waitMs: 0 });
});

test('a wait of the system clock ends with an abort', async () => {
  const stop = new AbortController();
  const sleeping = SYSTEM_CLOCK.sleep(60_000, stop.signal);
  stop.abort(new Error('stop'));
  await expect(sleeping).rejects.toThrow('stop');
});
