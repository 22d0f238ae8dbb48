import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import {
  chooseNewest,
  type RangeClaim,
} from '../../src/warehouse/newest-ranges.ts';

describe('chooseNewest', () => {
  const claims = fc.array(
    fc.record({
      at: fc.bigInt(1n, 20n),
      assetId: fc.constantFrom(null, undefined, 'x', 'y'),
      from: fc.bigInt(0n, 50n),
      to: fc.bigInt(51n, 70n),
    }),
    { maxLength: 12 },
  );
  const doOverlap = (a: RangeClaim, b: RangeClaim): boolean =>
    a.from < b.to &&
    b.from < a.to &&
    (!a.assetId || !b.assetId || a.assetId === b.assetId);

  test('holds no instant twice, and gives a range up only for one that is as new or newer', () => {
    fc.assert(
      fc.property(claims, (given) => {
        const { kept, dropped } = chooseNewest(given);
        expect(new Set([...kept, ...dropped])).toEqual(new Set(given));
        for (const [index, one] of kept.entries())
          expect(
            kept.slice(index + 1).some((other) => doOverlap(one, other)),
          ).toBe(false);
        for (const one of dropped)
          expect(
            kept.some((newer) => newer.at >= one.at && doOverlap(one, newer)),
          ).toBe(true);
      }),
    );
  });

  test('replaces an open range by what was published later, and keeps what that does not touch', () => {
    const closed = { at: 1n, from: 0n, to: 100n };
    const open = { at: 1n, from: 100n, to: 105n };
    const later = { at: 3n, from: 100n, to: 200n };
    expect(chooseNewest([closed, open, later])).toEqual({
      kept: [later, closed],
      dropped: [open],
    });
  });
});
