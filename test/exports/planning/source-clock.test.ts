import { fc } from '../../support/properties.ts';
import { expect, test } from 'vitest';
import { SECOND_MICROS, type Micros } from '../../../src/time/time.ts';
import { sourceClock } from '../../../src/exports/planning/source-clock.ts';

const instant = fc.bigInt({ min: 10n ** 15n, max: 4n * 10n ** 15n });

test('closes whole seconds, two minutes behind the earlier of both clocks', () => {
  fc.assert(
    fc.property(instant, instant, (blockTime: Micros, now: Micros) => {
      const clock = sourceClock({ blockTime }, now);
      const earlier = blockTime < now ? blockTime : now;
      expect(clock.closedTo % SECOND_MICROS).toBe(0n);
      const behind = earlier - clock.closedTo;
      expect(
        behind >= 120n * SECOND_MICROS && behind < 121n * SECOND_MICROS,
      ).toBe(true);
    }),
  );
});

test('closes nothing younger than a day where the source tells no time', () => {
  for (const untold of [undefined, 0n]) {
    const clock = sourceClock({ blockTime: untold }, 100_000n * SECOND_MICROS);
    expect(clock).toEqual({
      seen: 13_600n * SECOND_MICROS,
      closedTo: 13_480n * SECOND_MICROS,
      from: 'guessed',
    });
  }
});

test('closes where a mirror is proven, which has kept the margin already', () => {
  const blockTime = 90_000n * SECOND_MICROS;
  const now = 100_000n * SECOND_MICROS;
  const clock = sourceClock({ blockTime, isProven: true }, now);
  expect(clock.closedTo).toBe(blockTime);
  const untold = sourceClock({ blockTime: undefined, isProven: true }, now);
  expect(untold.closedTo).toBe(13_480n * SECOND_MICROS);
});
