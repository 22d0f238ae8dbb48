import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { formatInstant, SECOND_MICROS } from '../../src/time/time.ts';
import {
  planReplacements,
  type StaleSegment,
} from '../../src/warehouse/load-plan.ts';
import type { SegmentRecord } from '../../src/catalog/segment-records.ts';

const time = (second: number): string =>
  formatInstant(BigInt(second) * SECOND_MICROS);

function segment(
  id: number,
  from: number,
  to: number,
  assetId: string | null = null,
): SegmentRecord {
  return {
    segmentId: BigInt(id),
    partyId: 'p',
    assetId,
    from: time(from),
    to: time(to),
    objectKey: `k${id}`,
    rows: 1n,
    bytes: 1n,
    sha256: '',
    digest: '',
    objectBytes: 1n,
    objectSha256: '',
    columns: [],
    isLoaded: false,
    valuesDigest: null,
    framesSha256: null,
  };
}

const overlaps = (a: StaleSegment, b: StaleSegment): boolean =>
  a.from < b.to &&
  b.from < a.to &&
  (a.assetId === null || b.assetId === null || a.assetId === b.assetId);

describe('planReplacements', () => {
  const ranges = fc.array(
    fc.record({
      from: fc.nat(50),
      length: fc.integer({ min: 1, max: 20 }),
      asset: fc.constantFrom(null, 'x', 'y'),
    }),
    { maxLength: 8 },
  );

  test('uses everything once, and never parts a stale row from what replaces it', () => {
    fc.assert(
      fc.property(ranges, ranges, fc.array(fc.nat(7)), (newer, older, bad) => {
        const pending = newer.map(({ from, length, asset }, id) =>
          segment(id, from, from + length, asset),
        );
        const stale = older.map(({ from, length, asset }, id) =>
          segment(100 + id, from, from + length, asset),
        );
        const faulty = new Set(bad.map(BigInt));
        const plan = planReplacements(pending, stale, faulty);

        const ids = plan.flatMap(({ load, remove }) =>
          [...load, ...remove].map((each) => each.segmentId),
        );
        expect(new Set(ids).size).toBe(ids.length);
        for (const { load } of plan)
          expect(load.some((each) => faulty.has(each.segmentId))).toBe(false);
        for (const old of stale) {
          const group = plan.find(({ remove }) => remove.includes(old));
          const replacing = pending.filter((each) => overlaps(old, each));
          // All of it in one transaction, or nothing of test.
          for (const each of replacing)
            expect(plan.find(({ load }) => load.includes(each))).toBe(group);
        }
        const whole = planReplacements(pending, stale, new Set());
        expect(
          whole.flatMap(({ load, remove }) => [...load, ...remove]),
        ).toHaveLength(pending.length + stale.length);
      }),
    );
  });

  test('loads segments that replace nothing one by one, the oldest first', () => {
    const plan = planReplacements(
      [segment(2, 10, 20), segment(1, 0, 10)],
      [],
      new Set(),
    );
    expect(plan.map(({ load }) => load.map((each) => each.segmentId))).toEqual([
      [1n],
      [2n],
    ]);
  });
});
