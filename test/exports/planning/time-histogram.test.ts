import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import {
  findBorder,
  hasLess,
  mergeSeen,
  type HistogramBucket,
  sumBytes,
  TimeHistogram,
} from '../../../src/exports/planning/time-histogram.ts';

const ROW_BYTES = 100;
const rows = fc.array(fc.integer({ min: 0, max: 5000 }), {
  minLength: 1,
  maxLength: 200,
});
/** Which rows each of some streams showed, and how finely that is kept. */
const streams = fc.array(
  fc.record({
    from: fc.nat(),
    length: fc.nat(),
    stretchesMax: fc.integer({ min: 1, max: 40 }),
  }),
  { minLength: 1, maxLength: 4 },
);

function stretchesOf(
  seconds: readonly number[],
  stretchesMax: number,
): readonly HistogramBucket[] {
  const histogram = new TimeHistogram(stretchesMax);
  for (const second of seconds) histogram.add(second, ROW_BYTES);
  return histogram.stretches();
}

function window(
  all: readonly number[],
  { from, length }: { from: number; length: number },
): number[] {
  const start = from % all.length;
  return all.slice(start, start + (length % all.length) + 1);
}

describe('a histogram', () => {
  test('stays small whatever its length and loses no byte', () => {
    for (const stretchesMax of [undefined, 4096]) {
      const histogram = new TimeHistogram(stretchesMax);
      for (let second = 0; second < 100_000; second += 1)
        histogram.add((second * 7919) % 100_000, 100);
      const stretches = histogram.stretches();
      expect(stretches.length).toBeLessThanOrEqual(stretchesMax ?? 256);
      expect(sumBytes(stretches)).toBe(100_000 * 100);
    }
  });

  test('never divides one second', () => {
    expect(stretchesOf(Array(1000).fill(5), 10)).toEqual([
      { from: 5, to: 6, bytes: 1000 * ROW_BYTES },
    ]);
  });
});

describe('what streams showed', () => {
  test('is never more than what is there, and no answer with all rows has less', () => {
    fc.assert(
      fc.property(rows, streams, (all, given) => {
        let seen: HistogramBucket[] = [];
        for (const stream of given)
          seen = mergeSeen(
            seen,
            stretchesOf(window(all, stream), stream.stretchesMax),
          );
        for (const [index, { from, to, bytes }] of seen.entries()) {
          expect(from).toBeGreaterThanOrEqual(seen[index - 1]?.to ?? from);
          expect(bytes).toBeLessThanOrEqual(
            all.filter((row) => row >= from && row < to).length * ROW_BYTES,
          );
        }
        expect(hasLess(stretchesOf(all, 4096), seen)).toBe(false);
      }),
    );
  });

  test('tells an answer that lacks a second from a whole one', () => {
    fc.assert(
      fc.property(rows, fc.nat(), (all, word) => {
        const missing = all[word % all.length];
        const rest = all.filter((second) => second !== missing);
        expect(hasLess(stretchesOf(rest, 4096), stretchesOf(all, 4096))).toBe(
          true,
        );
      }),
    );
  });
});

test('a border is the last one before which no more is known, or the first where all is more', () => {
  const stretches = [0, 10, 20].map((from) => ({
    from,
    to: from + 10,
    bytes: 100,
  }));
  expect(
    [50, 100, 250, 1000].map((bytesMax) => findBorder(stretches, bytesMax)),
  ).toEqual([10, 10, 20, 30]);
  expect(findBorder([], 100)).toBeUndefined();
});
