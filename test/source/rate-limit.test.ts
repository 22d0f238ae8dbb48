/** The gate before every request: the shared rate, bans, and the source's own budget. */
import { errorCode } from '../../src/errors/errors.ts';
import { describe, expect, test } from 'vitest';
import { fc } from '../support/properties.ts';
import { nowMicros } from '../../src/time/time.ts';
import type { WaitReport } from '../../src/source/ports.ts';
import {
  RateLimiter,
  SYSTEM_CLOCK,
  WAIT_MAX_MS,
} from '../../src/source/rate-limit.ts';
import { localBans, localRate } from '../support/source-config.ts';
import { InstantClock, NEVER, PARTY, testSource } from './test-source.ts';
import { pageJson, send, serve } from './wire/wire-server.ts';

/** How late a slot may be used, and the longest batch. */
const BATCH_MS = 250;
/** Between two calls: a fast night, a pause, or anything in between. */
const GAP_MS = fc.oneof(fc.constant(0), fc.nat(20), fc.nat(900));

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
  const rate = new RateLimiter(7, { rate: state, bans, clock, observer });
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

test('no window holds more requests than the rate, its burst and one more allow', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 200 }),
      fc.integer({ min: 1, max: 3 }),
      fc.array(fc.tuple(fc.nat(2), GAP_MS), {
        minLength: 1,
        maxLength: 400,
        size: 'max',
      }),
      async (ratePerSecond, workers, calls) => {
        const sent = await sendTimes(ratePerSecond, workers, calls);
        // A slot may be used up to 250 ms late: these count as the burst.
        const burst = (BATCH_MS * ratePerSecond) / 1_000;
        let excessMax = 0;
        for (const [first, fromMs] of sent.entries()) {
          for (let last = first; last < sent.length; last += 1) {
            const windowMs = (sent[last] ?? fromMs) - fromMs;
            const allowed = (windowMs * ratePerSecond) / 1_000 + burst + 1;
            excessMax = Math.max(excessMax, last - first + 1 - allowed);
          }
        }
        expect(excessMax).toBeLessThan(1e-6);
      },
    ),
  );
});

/** A call that would wait for more than five minutes is refused, and sends nothing. */
function refusedForTooLong(error: unknown): true {
  if (errorCode(error) === 'SOURCE_RATE_LIMITED') return true;
  throw error;
}

/** When requests are sent by workers that share one budget: each call follows after its gap. */
async function sendTimes(
  ratePerSecond: number,
  workers: number,
  calls: readonly (readonly [number, number])[],
): Promise<readonly number[]> {
  const shared = { nowMs: 0 };
  const budget = localRate({
    nowMs: () => shared.nowMs,
    sleep: () => Promise.resolve(),
  });
  const sent: number[] = [];
  const limiters = Array.from({ length: workers }, () => {
    const clock = {
      nowMs: () => shared.nowMs,
      sleep: (delayMs: number) => {
        sent.push(shared.nowMs + delayMs);
        return Promise.resolve();
      },
    };
    const observer = { onRequest: () => undefined, onWait: () => undefined };
    const deps = { rate: budget, bans: localBans(), clock, observer };
    return new RateLimiter(ratePerSecond, deps);
  });
  for (const [worker, gapMs] of calls) {
    shared.nowMs += gapMs;
    const before = sent.length;
    const isRefused = await limiters[worker % workers]
      ?.pass('parties', NEVER)
      .then(() => false, refusedForTooLong);
    if (isRefused !== true && sent.length === before) sent.push(shared.nowMs);
  }
  return sent.toSorted((a, b) => a - b);
}
