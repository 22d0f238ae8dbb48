/** Which answers come from a node, or a cache, that is behind the run's clock. */
import { describe, expect, test } from 'vitest';
import { behindClock } from '../../../src/exports/planning/source-clock.ts';
import { at, clockAt } from '../ledger-double.ts';

const SEEN = at('2023-05-02T00:00:00Z');
const clock = { ...clockAt(SEEN), height: 400n, answeredAt: SEEN };
const hour = 3_600_000_000n;

describe('behindClock', () => {
  test.each([
    ['nothing is shown', {}],
    ['the same block', { blockHeight: 400n, blockTime: SEEN }],
    ['a later block', { blockHeight: 410n, blockTime: SEEN + hour }],
    ['a block of the minute before', { blockTime: SEEN - 59_000_000n }],
    ['an answer of now', { producedAt: SEEN }],
    ['an age of a minute', { ageMicros: hour / 60n }],
    ['a clock that is a minute slow', { producedAt: SEEN - 60_000_000n }],
  ])('believes an answer if it shows %s', (_, head) => {
    expect(behindClock(head, clock, undefined)).toBeUndefined();
  });

  test.each([
    ['a lower block', { blockHeight: 399n }],
    [
      'a lower block and the right time',
      { blockHeight: 399n, blockTime: SEEN },
    ],
    ['a block two hours older', { blockTime: SEEN - 2n * hour }],
    [
      'an older block of the right height',
      { blockHeight: 400n, blockTime: SEEN - hour },
    ],
    ['a time of an hour before', { producedAt: SEEN - hour }],
    ['an age of an hour and no time', { ageMicros: hour }],
    [
      'an age of an hour and the time of the cache',
      { producedAt: SEEN + hour, ageMicros: hour },
    ],
  ])('asks again if an answer shows %s', (_, head) => {
    expect(behindClock(head, clock, undefined)).toBeDefined();
  });

  test('believes a node that is behind for a range that it has passed', () => {
    const head = { blockHeight: 390n, blockTime: SEEN - 2n * hour };
    const to = SEEN - 3n * hour;
    expect(behindClock(head, clock, to)).toBeUndefined();
    expect(behindClock(head, clock, SEEN - hour)).toBeDefined();
    expect(behindClock({ blockHeight: 390n }, clock, to)).toBeDefined();
  });

  test('asks again if an answer is older than where a guessed clock would close', () => {
    const closedTo = SEEN - hour;
    const guessed = {
      ...clock,
      from: 'guessed',
      height: undefined,
      closedTo,
    } as const;
    const ask = (blockTime: bigint) =>
      behindClock({ blockTime }, guessed, undefined);
    expect(ask(SEEN - 2n * hour)).toBeDefined();
    // The network may stand still at the block of its newest entry.
    expect(ask(closedTo)).toBeUndefined();
  });

  test('takes the time of a mirror to the second, and that of a node with a margin', () => {
    const blockTime = clock.closedTo;
    expect(behindClock({ blockTime }, clock, undefined)).toBeDefined();
    const proven = { blockTime, isProven: true };
    expect(behindClock(proven, clock, undefined)).toBeUndefined();
    const earlier = { blockTime: blockTime - 1n, isProven: true };
    expect(behindClock(earlier, clock, undefined)).toBeDefined();
  });
});
