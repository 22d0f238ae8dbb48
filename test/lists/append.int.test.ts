/** Pages whose rows are stored already, and the rows of an audit that is dropped. */
import { beforeEach, describe, expect, test } from 'vitest';
import { ListStore } from '../../src/lists/store/list-store.ts';
import { checkpoints, ListDouble, parties } from './list-double.ts';
import { freshSyncWorld } from './sync-world.ts';

const world = await freshSyncWorld();

beforeEach(() => world.reset());

function openDouble(): ListDouble {
  const double = new ListDouble();
  double.lists.parties = parties(40);
  double.lists.checkpoints = checkpoints(40);
  return double;
}

describe('a page with a row that is stored already', () => {
  test.each([0, 4, 9, 25])(
    'is appended whole, if row %i is the one',
    async (nth) => {
      const double = openDouble();
      const rows = double.lists.parties.map(({ row }) => row);
      const known = rows.filter(({ key }) => key !== 'network')[nth];
      if (known === undefined) throw new Error('no such row');
      const store = new ListStore(world.warehouse.db);
      expect(await store.keepParty(known)).toEqual({ wasKnown: false });
      const outcome = await world.sync(double, { list: 'parties' });
      expect(outcome.verdict).toBe('complete');
      const held = await world.held('parties');
      expect(held.filter((key) => key !== 'network')).toEqual(
        rows.map(({ key }) => key).filter((key) => key !== 'network'),
      );
    },
  );
});

describe('an audit that is dropped', () => {
  test('leaves none of its rows', async () => {
    await world.pool.query(
      `with audit as (
         insert into mirror.generations (list, epoch, kind) values ('parties', 1, 'audit')
         returning generation_id)
       insert into mirror.audit_rows (generation_id, pos, key)
       select generation_id, n, n::text from audit, generate_series(1, 3) n`,
    );
    const count = 'select count(*)::int as rows from mirror.audit_rows';
    expect((await world.pool.query(count)).rows).toEqual([{ rows: 3 }]);
    await world.pool.query(
      `delete from mirror.generations where kind = 'audit'`,
    );
    expect((await world.pool.query(count)).rows).toEqual([{ rows: 0 }]);
  });
});
