/** The border rule, read in one direction over lists with ties everywhere and pages of any size. */
import { fc } from '../support/properties.ts';
import { describe, expect, test } from 'vitest';
import { cutPage, isWithin, sameKeys } from '../../src/walk/groups.ts';
import type { Anchor, ListName, Page } from '../../src/walk/ports.ts';
import {
  accept,
  ANCHORS_MAX,
  firstAnchor,
  isVerifiable,
  nextAnchor,
  withAnchor,
} from '../../src/walk/stitch.ts';
import { checkpoint, ListDouble, parties, type DoubleRow } from './list-double.ts';

interface Reading {
  readonly keys: readonly string[];
  readonly mismatch: string | undefined;
}

/** Follows anchors from the first page to the end, enlarging a page that shows nothing new. */
function read(double: ListDouble, list: ListName, newestFirst: boolean, size: number, limit = 500): Reading {
  const keys: string[] = [];
  const take = (groups: readonly { rows: readonly { key: string }[] }[]): void => {
    for (const { rows } of groups) keys.push(...rows.map(({ key }) => key));
  };
  let page: Page = double.compute({ list, newestFirst, size: size * 2 });
  let cut = cutPage(list, page);
  take(cut.whole);
  let anchor = nextAnchor(cut.whole, { baseUrl: 'x', partial: cut.partial });
  let asked = size;
  for (let requests = 0; anchor !== undefined && requests < limit; requests += 1) {
    page = double.compute({ list, newestFirst, size: asked, after: anchor.cursor });
    cut = cutPage(list, page);
    const acceptance = accept(anchor, cut);
    if (!acceptance.accepted) return { keys, mismatch: acceptance.mismatch.code };
    if (acceptance.fresh.length === 0) {
      if (!page.hasNextPage) return { keys, mismatch: undefined };
      asked *= 2;
      continue;
    }
    take(acceptance.fresh);
    anchor = nextAnchor(cut.whole, { baseUrl: 'x', edge: anchor.held.at(-1), partial: cut.partial });
    asked = size;
  }
  return { keys, mismatch: 'endless' };
}

function heights(ties: readonly number[]): DoubleRow[] {
  return ties.flatMap((rows, index) =>
    Array.from({ length: rows }, (_, tie) => checkpoint(index + 1, Math.floor(tie / 2))),
  );
}

function sorted(keys: readonly string[]): string[] {
  return keys.toSorted((left, right) => (left < right ? -1 : Number(left > right)));
}

const tieSizes = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 3, maxLength: 60 });
const pageSize = fc.integer({ min: 4, max: 20 });

test('no row is lost or repeated, whatever the ties, the page and the direction', () => {
  fc.assert(
    fc.property(tieSizes, pageSize, fc.boolean(), fc.nat(), (ties, size, newestFirst, seed) => {
      const double = new ListDouble(seed);
      double.lists.checkpoints = heights(ties);
      const { keys, mismatch } = read(double, 'checkpoints', newestFirst, size);
      expect(mismatch).toBeUndefined();
      expect(sorted(keys)).toEqual(sorted(double.lists.checkpoints.map(({ row }) => row.key)));
    }),
  );
});

test('parties the same, without "network"', () => {
  fc.assert(
    fc.property(fc.integer({ min: 3, max: 90 }), pageSize, fc.boolean(), (count, size, newestFirst) => {
      const double = new ListDouble();
      double.lists.parties = parties(count);
      const { keys, mismatch } = read(double, 'parties', newestFirst, size);
      expect(mismatch).toBeUndefined();
      const served = double.lists.parties.slice(0, -1).map(({ row }) => row.key);
      expect(keys).toEqual(newestFirst ? served.toReversed() : served);
    }),
  );
});

test('a cursor row that is gone before it is sent is never passed over in silence', () => {
  fc.assert(
    fc.property(fc.integer({ min: 30, max: 90 }), fc.integer({ min: 4, max: 9 }), (count, size) => {
      const double = new ListDouble();
      double.lists.parties = parties(count);
      const first = cutPage('parties', double.compute({ list: 'parties', newestFirst: false, size }));
      const anchor = nextAnchor(first.whole, { baseUrl: 'x' });
      double.lists.parties = double.lists.parties.filter(({ row }) => row.cursor !== anchor?.cursor);
      const page = double.compute({ list: 'parties', newestFirst: false, size, after: anchor!.cursor });
      expect(accept(anchor!, cutPage('parties', page)).accepted).toBe(false);
    }),
  );
});

describe('anchors', () => {
  const double = new ListDouble();
  double.lists.parties = parties(9);
  const cut = cutPage('parties', double.compute({ list: 'parties', newestFirst: true, size: 10 }));

  test('one group before the edge, so that the edge comes again', () => {
    const anchor = nextAnchor(cut.whole, { baseUrl: 'x' });
    expect(anchor?.cursor).toBe(cut.whole.at(-2)?.rows[0]?.cursor);
    expect(anchor?.held.map(({ group }) => group)).toEqual(cut.whole.slice(-2).map(({ group }) => group));
  });

  test('the first one reads the other way', () => {
    expect(firstAnchor(cut.whole, 'x')?.held.map(({ group }) => group)).toEqual(
      cut.whole
        .slice(0, 2)
        .map(({ group }) => group)
        .toReversed(),
    );
  });

  test('a single row proves nothing', () => {
    expect(isVerifiable(nextAnchor(cut.whole.slice(0, 1), { baseUrl: 'x' })!)).toBe(false);
    expect(isVerifiable(nextAnchor(cut.whole, { baseUrl: 'x' })!)).toBe(true);
  });

  test('the last few are kept, one without a cursor is none', () => {
    const anchor: Anchor = { cursor: 'c', baseUrl: 'x', held: [] };
    const kept = Array.from({ length: 9 }).reduce<readonly Anchor[]>((all) => withAnchor(all, anchor), []);
    expect(kept).toHaveLength(ANCHORS_MAX);
    expect(withAnchor(kept, { ...anchor, cursor: '' })).toBe(kept);
  });
});

test('keys are compared as multisets', () => {
  expect(isWithin(['a', 'a'], ['a', 'b', 'a'])).toBe(true);
  expect(isWithin(['a', 'a'], ['a', 'b'])).toBe(false);
  expect(sameKeys(['a', 'b', 'a'], ['a', 'a', 'b'])).toBe(true);
  expect(sameKeys(['a'], ['b'])).toBe(false);
});
