/** The walk from end to end: first walk, increment, resume, claim. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { addParties, checkpoint, checkpoints, ListDouble, parties } from './list-double.ts';
import { openMigrated, WalkWorld } from './walk-world.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new WalkWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

describe('first walk', () => {
  test.each([1, 2, 3, 5, 8, 19, 20, 21, 60, 137])(
    '%i parties in pages of 10, from both ends',
    async (count) => {
      const double = new ListDouble();
      double.lists.parties = parties(count);
      const { verdict, evidence } = await world.walk(double, { list: 'parties' });
      expect(evidence).toMatchObject({ missing: [], violations: [], rows: `${count}`, newRows: `${count}` });
      expect(verdict).toBe('complete');
      expect(evidence).toMatchObject({ asOfHeight: '1000', network: 'stored', ladder: [] });
      await world.expectParties(double);
    },
  );

  test.each([1, 2, 3, 5, 8, 19, 20, 21, 60, 137])('%i checkpoint heights, some tied', async (heights) => {
    const double = new ListDouble();
    double.lists.checkpoints = checkpoints(heights);
    const { verdict, evidence } = await world.walk(double, { list: 'checkpoints' });
    expect(evidence).toMatchObject({ missing: [], violations: [] });
    expect(verdict).toBe('complete');
    await world.expectCheckpoints(double);
  });

  test('a list of one page is asked in both directions', async () => {
    const double = new ListDouble();
    double.lists.checkpoints = checkpoints(3);
    await world.walk(double, { list: 'checkpoints' });
    expect(double.questions.map(({ newestFirst }) => newestFirst)).toEqual([true, false]);
  });
});

describe('increment', () => {
  test.each([0, 1, 7, 8, 9, 10, 17, 18, 30, 95])('%i new parties', async (fresh) => {
    const double = new ListDouble();
    double.lists.parties = parties(40);
    await world.walk(double, { list: 'parties' });
    addParties(double, fresh);
    double.height = 2_000n;
    const asked = double.questions.length;
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(evidence).toMatchObject({ missing: [], violations: [], newRows: `${fresh}`, asOfHeight: '2000' });
    expect(verdict).toBe('complete');
    await world.expectParties(double);
    const requests = double.questions.length - asked;
    // Beyond one page: the bound of the plan, one page in flight when the ends met, one over the seam.
    const requestsMax = fresh <= 7 ? 1 : 2 + Math.ceil((fresh - 9) / 8) + (fresh <= 17 ? 0 : 2);
    expect(requests).toBeLessThanOrEqual(requestsMax);
  });

  test('new checkpoints, tied at the border', async () => {
    const double = new ListDouble();
    double.lists.checkpoints = checkpoints(25);
    await world.walk(double, { list: 'checkpoints' });
    for (let step = 26; step < 70; step += 1) {
      double.lists.checkpoints.push(checkpoint(step * 10), checkpoint(step * 10, 1));
      if (step % 7 !== 0) continue;
      const { verdict } = await world.walk(double, { list: 'checkpoints' });
      expect(verdict).toBe('complete');
      await world.expectCheckpoints(double);
    }
  });
});
