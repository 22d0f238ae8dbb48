/**
 * Rows that are not understood: they are kept as they came and doubted by name, and the
 * others are mirrored as if these were not there.
 */
import { describe, expect, test } from 'vitest';
import { oddKey } from '../../src/ledger/ids.ts';
import type { ListedRow, ListName } from '../../src/lists/ports.ts';
import {
  checkpoints,
  type DoubleRow,
  ListDouble,
  parties,
} from './list-double.ts';
import { freshSyncWorld } from './sync-world.ts';

const world = await freshSyncWorld();

const LISTS = ['parties', 'checkpoints'] as const;
const ROWS = 40;
const CODE = 'ROW_NOT_UNDERSTOOD';

/** A source in which the rows at these places are not understood. */
function oddAt(places: readonly number[]) {
  const double = new ListDouble();
  double.lists.parties = parties(ROWS);
  double.lists.checkpoints = checkpoints(ROWS);
  const odd = new Set(
    LISTS.flatMap((list) =>
      places.map((place) => double.lists[list].at(place)?.row.key ?? ''),
    ),
  );
  const asShown = (row: ListedRow): ListedRow =>
    odd.has(row.key)
      ? {
          ...row,
          key: oddKey(row.key),
          odd: { row: row.key, because: 'it is odd' },
        }
      : row;
  double.answer = ({ page }) => ({ ...page, rows: page.rows.map(asShown) });
  return { double, odd };
}

const keysOf = (double: ListDouble, list: ListName) =>
  double.lists[list].map(({ row }) => row.key);

async function seenOf(list: ListName): Promise<readonly string[]> {
  const { rows } = await world.pool.query<{ row: string }>(
    `select odd->>'row' as row
     from mirror.doubts, jsonb_array_elements(seen->'rows') odd
     where subject = $1 and code = $2 and closed_at is null order by 1`,
    [list, CODE],
  );
  return rows.map(({ row }) => row);
}

describe.each(LISTS)('a list of %s', (list) => {
  const cases: [string, readonly number[]][] = [
    ['its first row', [0]],
    ['a row amid it', [17]],
    ['its last row', [-1]],
    ['its newest rows', [-1, -2, -3]],
    ['rows in a row', [7, 8, 9, 10]],
    ['rows here and there', [0, 3, 11, 12, 25, -1]],
  ];
  test.each(
    cases.flatMap(([what, at]) =>
      [3, 10, 100].map((size) => [what, at, size] as const),
    ),
  )(
    'is mirrored without %s, which is doubted by name (%j, pages of %i)',
    async (_what, places, pageSize) => {
      const { double, odd } = oddAt(places);
      const keys = keysOf(double, list);
      const understood = keys.filter((key) => !odd.has(key));
      for (let night = 1; night <= 2; night += 1) {
        const { verdict, evidence } = await world.sync(double, {
          list,
          pageSize,
        });
        expect(verdict).toBe('suspicious');
        expect(JSON.stringify(evidence)).toContain(CODE);
        expect((await world.held(list)).toSorted()).toEqual(
          understood.toSorted(),
        );
        expect(await world.openDoubts(list)).toEqual([CODE]);
        expect(await seenOf(list)).toEqual(
          [...new Set(keys)].filter((key) => odd.has(key)).toSorted(),
        );
      }
    },
  );

  test('takes in new rows, and is complete when the odd ones are gone', async () => {
    const { double } = oddAt([17]);
    const all = double.lists[list];
    double.lists[list] = all.slice(0, 30);
    await world.sync(double, { list });
    expect(await world.held(list)).toHaveLength(29);
    double.lists[list] = all;
    await world.sync(double, { list });
    expect(await world.held(list)).toHaveLength(all.length - 1);
    double.answer = ({ page }) => page;
    const { verdict } = await world.sync(double, { list });
    expect(verdict).toBe('complete');
    expect(await world.held(list)).toHaveLength(all.length);
    expect(await world.openDoubts(list)).toEqual([]);
  });

  test('is not another network unseen, however long it has had odd rows', async () => {
    const { double } = oddAt([17]);
    await world.sync(double, { list });
    const held = await world.held(list);
    const other = new ListDouble();
    const rename = (rows: readonly DoubleRow[]) =>
      rows
        .filter(({ rank }) => rank !== undefined)
        .map(({ row, rank }) => ({
          row: { ...row, key: `${row.key}f` },
          rank,
        }));
    other.lists.parties = rename(parties(ROWS));
    other.lists.checkpoints = rename(checkpoints(ROWS));
    const { verdict } = await world.sync(other, { list, isAudit: true });
    expect(verdict).toBe('suspicious');
    expect(await world.openDoubts(list)).toContain('OTHER_NETWORK');
    expect(await world.held(list)).toEqual(held);
  });

  test('is doubted by the run that goes on after a kill', async () => {
    const { double } = oddAt([2]);
    let commits = 0;
    const killed = world.sync(
      double,
      { list, pageSize: 5 },
      {
        deps: {
          failpoint: (step) => {
            if (step !== 'committed') return;
            commits += 1;
            if (commits === 3) throw new Error('killed');
          },
        },
      },
    );
    await expect(killed).rejects.toThrow('killed');
    const { verdict } = await world.sync(double, { list, pageSize: 5 });
    expect(verdict).toBe('suspicious');
    expect(await world.openDoubts(list)).toEqual([CODE]);
  });
});
