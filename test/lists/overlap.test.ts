/**
 * Groups and the overlap check, for pages that any of the three kinds of sources sends.
 */
import { describe, expect, test } from 'vitest';
import {
  classifyOverlap,
  classifyRest,
  groupRows,
  isSameGroups,
  isSameRows,
  subtract,
  withoutKeys,
  type Group,
} from '../../src/lists/overlap.ts';
import type { ListedRow } from '../../src/lists/ports.ts';
import { fc } from '../support/properties.ts';

/**
 * A list: rows by group, oldest first. Keys may repeat within a group, as equal
 * checkpoints do.
 */
const list = fc
  .array(fc.array(fc.nat({ max: 2 }), { minLength: 1, maxLength: 4 }), {
    minLength: 3,
    maxLength: 8,
  })
  .map((sizes) =>
    sizes.map((variants, at) =>
      variants.map((variant): ListedRow =>
        row(`cursor ${at}`, `key ${at}/${variant}`),
      ),
    ),
  );
const keysOf = (rows: readonly ListedRow[]): string[] =>
  rows.map(({ key }) => key);

function row(cursor: string, key: string): ListedRow {
  return { cursor, key, extra: undefined };
}

function groupOf(rows: readonly ListedRow[]): Group {
  return { cursor: rows[0]?.cursor ?? '', keys: keysOf(rows) };
}

describe('cursor groups of a page', () => {
  test('hold every row of a page once, in its order, neighbours of one cursor together', () => {
    fc.assert(
      fc.property(list, (groups) => {
        const found = groupRows(groups.flat());
        expect(found).toEqual(groups.map(groupOf));
        expect(found.flatMap(({ keys }) => keys)).toEqual(
          keysOf(groups.flat()),
        );
      }),
    );
  });

  test('are subtracted as multisets: the remainder and the taken rows make up the page', () => {
    const keys = fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 8 });
    const count = (all: readonly string[], key: string): number =>
      all.filter((one) => one === key).length;
    fc.assert(
      fc.property(keys, keys, (left, right) => {
        const rest = subtract(left, right);
        for (const key of ['a', 'b', 'c'])
          expect(count(rest, key)).toBe(
            Math.max(0, count(left, key) - count(right, key)),
          );
        const rows = left.map((key) => row('c', key));
        expect(keysOf(withoutKeys(rows, right))).toEqual(rest);
        const isSame = rest.length === 0 && left.length === right.length;
        expect(
          isSameRows(
            rows,
            right.map((key) => row('d', key)),
          ),
        ).toBe(isSame);
      }),
    );
  });
});

describe('two pages of the same size behind one cursor', () => {
  const page = (...rows: readonly string[]): ListedRow[] =>
    rows.map((name) => row(`cursor ${name[0]}`, `key ${name}`));

  test.each([
    ['the same rows', page('a1', 'b1', 'c1'), page('a1', 'b1', 'c1'), true],
    ['another part of a cut group', page('a1', 'b1'), page('a1', 'b2'), true],
    [
      'another rest of the first group',
      page('a1', 'b1'),
      page('a2', 'b1'),
      true,
    ],
    [
      'another row of a whole group',
      page('a1', 'b1', 'c1'),
      page('a1', 'b2', 'c1'),
      false,
    ],
    ['another group', page('a1', 'b1'), page('a1', 'c1'), false],
    ['fewer rows', page('a1', 'b1'), page('a1'), false],
    ['more of a group', page('a1', 'b1', 'b2'), page('a1', 'a2', 'b1'), false],
  ] as const)('show %s', (_, left, right, expected) => {
    expect(isSameGroups(left, right)).toBe(expected);
    expect(isSameGroups(right, left)).toBe(expected);
  });
});

describe('the overlap check', () => {
  /**
   * What comes behind a cursor, whichever of the three ways the source understands test.
   */
  const behind = (
    groups: readonly (readonly ListedRow[])[],
    at: number,
    isInclusive: boolean,
  ): ListedRow[] => [
    ...(isInclusive ? (groups[at] ?? []).slice(1) : []),
    ...groups.slice(at + 1).flat(),
  ];

  test('passes an honest page, and nothing of it is lost or taken twice', () => {
    fc.assert(
      fc.property(list, fc.boolean(), fc.nat(), (groups, isInclusive, cut) => {
        const held = groups.slice(0, 2);
        const page = behind(groups, 0, isInclusive);
        const least = page.length - groups.slice(2).flat().length;
        const shown = page.slice(0, least + (cut % (page.length - least + 1)));
        const found = classifyOverlap(shown, groupOf(held[0] ?? []), [
          groupOf(held[1] ?? []),
        ]);
        expect(found.kind).toBe('shown');
        if (found.kind !== 'shown') return;
        const fresh = groups
          .slice(2)
          .flat()
          .slice(0, shown.length - least);
        expect(keysOf(found.fresh)).toEqual(keysOf(fresh));
        expect(found.groups.flatMap(({ keys }) => keys)).toEqual(
          keysOf([...(held[1] ?? []), ...fresh]),
        );
      }),
    );
  });

  test('passes no page that lacks a row of the last group that is held', () => {
    fc.assert(
      fc.property(
        list,
        fc.boolean(),
        fc.nat(),
        (groups, isInclusive, which) => {
          const [sent = [], last = []] = groups;
          const lost = which % last.length;
          const page = [
            ...(isInclusive ? sent.slice(1) : []),
            ...last.filter((_, at) => at !== lost),
            ...groups.slice(2).flat(),
          ];
          expect(
            classifyOverlap(page, groupOf(sent), [groupOf(last)]).kind,
          ).not.toBe('shown');
        },
      ),
    );
  });

  test('passes no page of another list', () => {
    fc.assert(
      fc.property(list, (groups) => {
        const foreign = groups.map((rows) =>
          rows.map(({ cursor, key }) => row(cursor, `foreign ${key}`)),
        );
        const [sent = [], last = []] = groups;
        expect(
          classifyOverlap(foreign.slice(1).flat(), groupOf(sent), [
            groupOf(last),
          ]).kind,
        ).toBe('missing');
      }),
    );
  });

  test('takes a group at a page end as complete only where all rows but the cursor’s came', () => {
    fc.assert(
      fc.property(list, fc.nat(), (groups, cut) => {
        const [own = []] = groups;
        const seen = own.slice(0, 1 + (cut % own.length));
        const page = [...own.slice(1), ...groups.slice(1).flat()];
        const rest = classifyRest(page, groupOf(seen));
        const taken = rest.kind === 'more' ? rest.fresh : [];
        // Never more rows of the group than the source has.
        expect(seen.length + taken.length).toBeLessThanOrEqual(own.length);
        expect(rest.kind !== 'complete' || seen.length === own.length).toBe(
          true,
        );
        const last = rest.kind === 'more' ? page : rest.fresh;
        expect(keysOf(last).at(-1)).toBe(keysOf(page).at(-1));
      }),
    );
  });
});
