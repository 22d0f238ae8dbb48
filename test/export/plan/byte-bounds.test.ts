import { fc } from '../../support/properties.ts';
import { expect, test } from 'vitest';
import {
  after,
  boundsOf,
  type ByteBounds,
  bytesIn,
  joined,
  lacks,
  thinned,
} from '../../../src/export/plan/byte-bounds.ts';
import { TimeHistogram } from '../../../src/export/plan/time-histogram.ts';
import type { Sample } from '../../../src/export/plan/time-histogram.ts';

const ROW_BYTES = 100;
const rows = fc.array(fc.integer({ min: -300, max: 5000 }), { minLength: 1, maxLength: 200 });
/** Which rows each of some streams showed, and how finely that is kept: no bucket holds both sides of 1970. */
const streams = fc.array(
  fc.record({ from: fc.nat(), length: fc.nat(), bucketsMax: fc.integer({ min: 2, max: 40 }) }),
  { minLength: 1, maxLength: 4 },
);

function sampleOf(seconds: readonly number[], bucketsMax: number): Sample {
  const histogram = new TimeHistogram();
  for (const second of seconds) histogram.add(second, ROW_BYTES);
  return histogram.sample(bucketsMax);
}

function window(all: readonly number[], { from, length }: { from: number; length: number }): number[] {
  const start = from % all.length;
  return all.slice(start, start + (length % all.length) + 1);
}

function truth(all: readonly number[], from: number, to: number): number {
  return all.filter((second) => second >= from && second < to).length * ROW_BYTES;
}

function expectBounds(bounds: ByteBounds, all: readonly number[]): void {
  for (const [from, seconds] of bounds) {
    expect(bytesIn(bounds, from, from + seconds)).toBeLessThanOrEqual(truth(all, from, from + seconds));
  }
}

test('rows that streams showed bound what is there, and no later stream lowers the bound', () => {
  fc.assert(
    fc.property(rows, streams, fc.integer({ min: -300, max: 5000 }), (all, given, second) => {
      let bounds: ByteBounds = [];
      for (const stream of given) {
        const shown = window(all, stream);
        bounds = joined(bounds, boundsOf(sampleOf(shown, stream.bucketsMax)));
        expect(bytesIn(bounds, -Infinity, Infinity)).toBeGreaterThanOrEqual(shown.length * ROW_BYTES);
      }
      expectBounds(bounds, all);
      const thin = thinned(bounds, 8);
      expect(thin.length).toBeLessThanOrEqual(8);
      expect(bytesIn(thin, -Infinity, Infinity)).toBe(bytesIn(bounds, -Infinity, Infinity));
      expectBounds(thin, all);
      // Everything before a second is done, and more of it came than had been seen.
      const surplus = Math.max(0, truth(all, -Infinity, second) - bytesIn(bounds, -Infinity, second));
      expectBounds(
        after(bounds, second, surplus),
        all.filter((row) => row >= second),
      );
    }),
  );
});

test('an answer with fewer rows in some range than were seen there is told from a complete one', () => {
  fc.assert(
    fc.property(rows, streams, fc.nat(), (all, given, word) => {
      const bounds = given
        .map((stream) => boundsOf(sampleOf(window(all, stream), stream.bucketsMax)))
        .reduce(joined);
      expect(lacks(sampleOf(all, 4096), bounds, -Infinity, Infinity)).toBe(false);
      // Of a second that was seen for itself, nothing comes.
      const seen = window(all, given[0] ?? { from: 0, length: 0 });
      const missing = seen[word % seen.length] ?? 0;
      const exact = joined(bounds, boundsOf(sampleOf(seen, 4096)));
      const rest = all.filter((second) => second !== missing);
      expect(lacks(sampleOf(rest, 4096), exact, -Infinity, Infinity)).toBe(true);
    }),
  );
});
