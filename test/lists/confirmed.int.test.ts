/**
 * What one reading found is confirmed by a second in a row: rows that are inserted while a
 * list is read lie behind the place where the reading is.
 */
import { describe, expect, test } from 'vitest';
import type { ListName } from '../../src/lists/ports.ts';
import { checkpoints, ListDouble, parties } from './list-double.ts';
import { freshSyncWorld } from './sync-world.ts';

const world = await freshSyncWorld();

const LISTS = ['parties', 'checkpoints'] as const;
const ROWS = 40;

/** Shows the list without rows of its middle. */
function withoutMiddle(count = 3): ListDouble {
  const double = new ListDouble();
  double.lists.parties = parties(ROWS);
  double.lists.checkpoints = checkpoints(ROWS);
  for (const list of LISTS) double.lists[list].splice(5, count);
  return double;
}

function insertMiddle(double: ListDouble): void {
  double.lists.parties = parties(ROWS);
  double.lists.checkpoints = checkpoints(ROWS);
}

function sizeOf(list: ListName): number {
  return (list === 'parties' ? parties(ROWS) : checkpoints(ROWS)).length;
}

describe('the end of a list', () => {
  /** Pages of two rows; those that come after number 30 tie for the newest place. */
  function tied(rows: number): ListDouble {
    const double = new ListDouble();
    double.lists.parties = parties(rows);
    double.answer = ({ question, page }) => {
      if (!question.newestFirst) return page;
      // The newest page of a source that orders ties the same way in both directions.
      const newest = double.lists.parties.slice(-3, -1).map(({ row }) => row);
      return {
        ...page,
        rows: newest.toReversed(),
        startCursor: undefined,
        endCursor: undefined,
        hasNextPage: true,
      };
    };
    return double;
  }

  test.each([68, 69, 70, 71, 72, 73])(
    'is not a page that promises more, even if the newest rows are all held (%i rows)',
    async (rows) => {
      const double = tied(rows);
      const { verdict } = await world.sync(double, {
        list: 'parties',
        pageSize: 4,
      });
      expect(verdict).toBe('complete');
      expect(await world.held('parties')).toHaveLength(rows);
    },
  );

  test('is reached in a list that grows nearly as fast as it is read', async () => {
    const double = new ListDouble();
    let rows = 60;
    double.lists.parties = parties(rows);
    double.before = ({ newestFirst }) => {
      if (newestFirst || rows > 5_000) return;
      rows += 3;
      double.lists.parties = parties(rows);
    };
    const { verdict } = await world.sync(double, {
      list: 'parties',
      pageSize: 4,
    });
    expect(verdict).toBe('complete');
    expect(rows).toBeLessThan(5_000);
  });
});

describe.each(LISTS)('a reading of %s', (list: ListName) => {
  test('is confirmed by a second one before it is complete', async () => {
    const double = withoutMiddle();
    const { verdict, evidence } = await world.sync(double, { list });
    expect([verdict, evidence['kind'], evidence['readings']]).toEqual([
      'complete',
      'first reading',
      2,
    ]);
    expect(evidence['newRows']).toBe(evidence['rows']);

    const increment = await world.sync(double, { list });
    expect([
      increment.evidence['kind'],
      increment.evidence['readings'],
    ]).toEqual(['increment', undefined]);
    expect(increment.evidence['newRows']).toBe('0');
  });

  test('finds rows that were inserted during the first one', async () => {
    const double = withoutMiddle();
    double.before = ({ newestFirst }) => {
      if (newestFirst) insertMiddle(double);
    };
    const { verdict, evidence } = await world.sync(double, {
      list,
      pageSize: 10,
    });
    expect([verdict, evidence['readings']]).toEqual(['complete', 3]);
    expect(await world.held(list)).toHaveLength(sizeOf(list));
  });

  test('that finds inserted rows is followed by one that agrees', async () => {
    const double = withoutMiddle();
    await world.sync(double, { list });
    const before = await world.held(list);
    insertMiddle(double);
    const { verdict, evidence } = await world.sync(double, {
      list,
      isAudit: true,
    });
    expect([verdict, evidence['readings']]).toEqual(['complete', 2]);
    const after = await world.held(list);
    expect(evidence['newRows']).toBe(
      `${new Set(after).size - new Set(before).size}`,
    );
  });

  test('is not complete while each one finds more than the last', async () => {
    const double = withoutMiddle(20);
    let left = 20;
    double.before = ({ newestFirst }) => {
      if (!newestFirst) return;
      left -= 2;
      double.lists[list] = withoutMiddle(left).lists[list];
    };
    const { verdict, evidence } = await world.sync(double, { list });
    expect(verdict).toBe('incomplete');
    expect(evidence['missing']).toMatchObject([{ code: 'READINGS_DIFFER' }]);

    double.before = () => undefined;
    const next = await world.sync(double, { list });
    expect(next.verdict).toBe('complete');
  });

  test('is whole in a night, unless the list is longer than is set', async () => {
    const double = withoutMiddle();
    await world.sync(double, { list });
    insertMiddle(double);
    const long = await world.sync(double, { list, wholeUpToRows: 10 });
    expect(long.evidence['kind']).toBe('increment');
    expect(long.evidence['lastAuditAt']).toEqual(expect.any(String));

    const night = await world.sync(double, { list, wholeUpToRows: 1_000 });
    expect([night.verdict, night.evidence['kind']]).toEqual([
      'complete',
      'audit',
    ]);
    expect(await world.held(list)).toHaveLength(sizeOf(list));
  });
});
