/** The schedule of single requests keeps the rate in every window, whatever the arrivals. */
import { fc } from '../support/properties.ts';
import { expect, test } from 'vitest';
import { rateScheduleOf, reserveNext } from '../../src/state/rate-schedule.ts';

test('no window holds more requests than its length, the burst and one more allow', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 1000 }),
      fc.array(fc.integer({ min: 0, max: 400_000 }), { minLength: 2, maxLength: 80 }),
      (ratePerSecond, gaps) => {
        const pace = rateScheduleOf(ratePerSecond);
        const sends: number[] = [];
        let now = 1_700_000_000_000_000;
        let dueAt: number | undefined;
        for (const gap of gaps) {
          now += gap;
          const taken = reserveNext(dueAt, now, pace);
          dueAt = taken.dueAt;
          sends.push(now + taken.waitMicros);
        }
        for (const [first, from] of sends.entries()) {
          for (const [last, to] of sends.entries()) {
            if (last <= first) continue;
            const allowed = (to - from + pace.burst) / pace.interval + 1;
            expect(last - first + 1).toBeLessThanOrEqual(allowed + 1e-3);
          }
        }
      },
    ),
  );
});

test('a caller that asks rarely never waits', () => {
  const pace = rateScheduleOf(10);
  let dueAt: number | undefined;
  for (let now = 0; now < 5_000_000; now += pace.interval) {
    const taken = reserveNext(dueAt, now, pace);
    expect(taken.waitMicros).toBe(0);
    dueAt = taken.dueAt;
  }
});

test('a dueAt far in the future, from a clock that was set back, is not believed', () => {
  const pace = rateScheduleOf(1);
  expect(reserveNext(1e15, 0, pace).waitMicros).toBeLessThanOrEqual(pace.aheadMax);
});
