/** When two stretches are one: along the chain from its edge, no hole, no stranger, two whole groups. */
import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import type { RowGroup } from '../../src/walk/groups.ts';
import { runAlong } from '../../src/walk/join.ts';
import type { PlacedGroup } from '../../src/walk/ports.ts';
import { HEAD_ROOM, originOf, placeBeyond, placesBetween, STEP } from '../../src/walk/positions.ts';

function shown(...labels: string[]): RowGroup[] {
  return labels.map((label) => {
    const [group = '', copies = '1'] = label.split('x');
    const row = { cursor: group, key: group, group, fields: [group], extra: undefined };
    return { group, rows: Array.from({ length: Number(copies) }, () => row) };
  });
}

function edge(...labels: string[]): PlacedGroup[] {
  return labels.map((label, index) => {
    const [group = '', copies = '1'] = label.split('x');
    return { group, keys: Array.from({ length: Number(copies) }, () => group), pos: BigInt(-index) };
  });
}

const open = { partial: undefined, isWholeChain: false };

describe('a page against a chain', () => {
  test.each([
    ['two whole groups', shown('a', 'b'), edge('a', 'b', 'c'), open, true],
    ['one is not enough', shown('a'), edge('a', 'b'), open, false],
    ['one is the whole chain', shown('a'), edge('a'), { ...open, isWholeChain: true }, true],
    [
      'rows beyond the other end are nothing to it',
      shown('a', 'b', 'z'),
      edge('a', 'b'),
      { ...open, isWholeChain: true },
      true,
    ],
    ['repeated rows counted', shown('ax2', 'b'), edge('ax2', 'b'), open, true],
    ['the cut group does not count', shown('a'), edge('a', 'b'), { ...open, partial: shown('b')[0] }, false],
  ] as const)('%s', (_, page, chain, context, isProof) => {
    const run = runAlong(page, chain, context);
    expect(run).toMatchObject({ isProof, missing: [], strangers: [] });
  });

  test('a hole: the page passed over what the chain holds', () => {
    expect(runAlong(shown('a', 'c'), edge('a', 'b', 'c'), open).missing.map(({ group }) => group)).toEqual([
      'b',
    ]);
  });

  test('it begins in the middle of the chain', () => {
    expect(runAlong(shown('c', 'd'), edge('a', 'b', 'c', 'd'), open).missing).toHaveLength(2);
  });

  test('fewer rows of a tie than the chain holds', () => {
    expect(runAlong(shown('a', 'b'), edge('a', 'bx2'), open).missing).toHaveLength(1);
  });

  test('the cut group shows a row that the chain has not', () => {
    const stranger = { ...shown('c')[0]!, group: 'b' };
    expect(runAlong(shown('a'), edge('a', 'b'), { ...open, partial: stranger }).strangers).toHaveLength(1);
  });

  test('a stranger between two: it is named with its neighbours', () => {
    const { strangers, missing } = runAlong(shown('a', 's', 'b'), edge('a', 'b'), open);
    expect(missing).toEqual([]);
    expect(strangers.map(({ group, outer, inner }) => [outer?.group, group.group, inner?.group])).toEqual([
      ['a', 's', 'b'],
    ]);
  });
});

describe('positions', () => {
  test('follow the edge in steps; a checkpoint stands at its height', () => {
    expect(placeBeyond('parties', shown('a', 'b'), 0n, 'up').map(({ pos }) => pos)).toEqual([
      STEP,
      2n * STEP,
    ]);
    expect(placeBeyond('parties', shown('a', 'b'), 0n, 'down').map(({ pos }) => pos)).toEqual([
      -STEP,
      -2n * STEP,
    ]);
    expect(placeBeyond('checkpoints', shown('18446744073709551615'), 0n, 'up')[0]?.pos).toBe(2n ** 64n - 1n);
  });

  test('a chain that touches none begins far above all, or far below', () => {
    expect(originOf('down', { lowest: 5n, highest: 9n })).toBe(9n + HEAD_ROOM);
    expect(originOf('up', { lowest: 5n, highest: 9n })).toBe(5n - HEAD_ROOM);
    expect(originOf('down', undefined)).toBeGreaterThan(originOf('up', undefined));
  });

  test('between two rows: in order, apart, strictly inside; or no room', () => {
    const rooms = fc.record({
      from: fc.bigInt(-(2n ** 50n), 2n ** 50n),
      width: fc.bigInt(1n, 2n ** 44n),
      isUp: fc.boolean(),
      count: fc.integer({ min: 1, max: 300 }),
      part: fc.constantFrom('all', 'the beginning'),
    });
    fc.assert(
      fc.property(rooms, ({ from, width, isUp, count, part }) => {
        const to = isUp ? from + width : from - width;
        const places = placesBetween(from, to, count, part);
        expect(places === undefined).toBe(width < BigInt(count) + 1n);
        const path = places === undefined ? [] : [from, ...places, to];
        const steps = path.slice(1).map((pos, index) => pos - (path[index] ?? 0n));
        expect(steps.every((step) => (isUp ? step > 0n : step < 0n))).toBe(true);
      }),
    );
  });
});
