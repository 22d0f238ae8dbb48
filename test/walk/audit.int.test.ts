/** Audits: every page again. What was missed is added in its place, what is gone is marked, nothing moves. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { PermanentError } from '../../src/core/errors.ts';
import { freshDatabase } from '../support/database.ts';
import { addParties, checkpoint, checkpoints, ListDouble, parties, partyId } from './list-double.ts';
import { openMigrated, WalkWorld } from './walk-world.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new WalkWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

async function placesOf(): Promise<ReadonlyMap<string, bigint>> {
  const { rows } = await world.pool.query('select party_id, pos from mirror.places');
  return new Map(rows.map(({ party_id, pos }) => [party_id, pos]));
}

async function goneParties(): Promise<string[]> {
  const { rows } = await world.pool.query(
    'select party_id from mirror.places where gone_since is not null order by pos',
  );
  return rows.map(({ party_id }) => party_id);
}

describe('parties', () => {
  test('an audit of a whole mirror changes nothing', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(95);
    await world.walk(double, { list: 'parties' });
    const before = await placesOf();
    const { verdict, evidence } = await world.walk(double, { list: 'parties', kind: 'audit' });
    expect(evidence).toMatchObject({
      kind: 'audit',
      audit: { missed: '0', gone: '0', served: '95' },
      violations: [],
    });
    expect(verdict).toBe('complete');
    expect(await placesOf()).toEqual(before);
  });

  test('each walk says when every row was last looked for', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(30);
    const dates: (string | undefined)[] = [];
    for (const kind of ['walk', 'walk', 'audit', 'walk'] as const) {
      dates.push((await world.walk(double, { list: 'parties', kind })).evidence.backfillLookedForAt);
    }
    const [first = '', second = '', audit = '', last = ''] = dates;
    expect([first < second, second < audit, audit < last, first === '']).toEqual([true, true, true, false]);
  });

  test('without a walk before it, an audit is the first walk', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(30);
    const { verdict, evidence } = await world.walk(double, { list: 'parties', kind: 'audit' });
    expect({ verdict, kind: evidence.kind }).toEqual({ verdict: 'complete', kind: 'walk' });
    await world.expectParties(double);
  });

  test.each([4, 7, 10, 33])(
    'rows that were inserted under the frontier, gone rows and new rows, pages of %i',
    async (pageSize) => {
      const double = new ListDouble();
      const hidden = new Set([0n, 1n, 13n, 14n, 15n, 16n, 40n, 77n, 78n]);
      double.lists.parties = parties(90).filter(({ rank }) => rank === undefined || !hidden.has(rank));
      await world.walk(double, { list: 'parties' });
      const before = await placesOf();
      const departed = new Set([20n, 21n, 60n]);
      double.lists.parties = parties(110).filter(({ rank }) => rank === undefined || !departed.has(rank));
      const { verdict, evidence } = await world.walk(double, { list: 'parties', kind: 'audit', pageSize });
      expect(evidence).toMatchObject({
        audit: { missed: '9', gone: '3', served: '107' },
        violations: [],
        missing: [],
      });
      expect(verdict).toBe('complete');
      const served = parties(110)
        .slice(0, -1)
        .map(({ row }) => row.key);
      expect(await world.placedParties()).toEqual(served);
      expect(await goneParties()).toEqual([20, 21, 60].map(partyId));
      for (const [id, pos] of before) expect((await placesOf()).get(id)).toBe(pos);
      // The next increment stands on it.
      addParties(double, 5);
      const next = await world.walk(double, { list: 'parties' });
      expect(next).toMatchObject({ verdict: 'complete', evidence: { newRows: '5', requests: 1 } });
    },
  );

  test('a gone row that comes back is not gone', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(50);
    await world.walk(double, { list: 'parties' });
    double.lists.parties = parties(50).filter(({ rank }) => rank !== 25n);
    await world.walk(double, { list: 'parties', kind: 'audit' });
    expect(await goneParties()).toEqual([partyId(25)]);
    double.lists.parties = parties(50);
    await world.walk(double, { list: 'parties', kind: 'audit' });
    expect(await goneParties()).toEqual([]);
  });

  test('where there is no room between two rows, their neighbours are spread, in order', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(60).filter(({ rank }) => rank !== 30n && rank !== 31n);
    await world.walk(double, { list: 'parties' });
    // No room at all from the 20th to the 40th row.
    await world.pool
      .query(`with ranked as (select party_id, row_number() over (order by pos) as n, pos from mirror.parties where epoch = 1)
      update mirror.parties p set pos = (select pos from ranked where n = 20) + ranked.n - 20
      from ranked where ranked.party_id = p.party_id and ranked.n between 20 and 40`);
    double.lists.parties = parties(60);
    const { verdict, evidence } = await world.walk(double, { list: 'parties', kind: 'audit' });
    expect(evidence).toMatchObject({ audit: { missed: '2' }, violations: [] });
    expect(verdict).toBe('complete');
    await world.expectParties(double);
  });

  describe('one that came to no whole end', () => {
    /** Answers so many questions of the next audit, and then no more. */
    function tired(double: ListDouble, answers: number): void {
      const asked = double.questions.length;
      double.answer = ({ number, page }) => {
        if (number > asked + answers) throw new PermanentError('Cannot ask', { code: 'SOURCE_STATUS' });
        return page;
      };
    }

    async function audited(
      double: ListDouble,
    ): Promise<{ verdict: string; resumed: boolean; asked: number }> {
      const before = double.questions.length;
      const { verdict, evidence } = await world.walk(double, { list: 'parties', kind: 'audit' });
      return { verdict, resumed: evidence.resumed, asked: double.questions.length - before };
    }

    async function begun(): Promise<ListDouble> {
      const double = new ListDouble();
      double.lists.parties = parties(300).filter(({ rank }) => rank !== 7n);
      await world.walk(double, { list: 'parties' });
      double.lists.parties = parties(300);
      tired(double, 20);
      expect(await audited(double)).toMatchObject({ verdict: 'incomplete', resumed: false });
      return double;
    }

    test('is gone on with by the next', async () => {
      const double = await begun();
      addParties(double, 5);
      double.answer = ({ page }) => page;
      const { verdict, evidence } = await world.walk(double, { list: 'parties', kind: 'audit' });
      expect(evidence).toMatchObject({ resumed: true, audit: { missed: '1', gone: '0', served: '305' } });
      expect(verdict).toBe('complete');
      await world.expectParties(double);
      double.questions.length = 0;
      const whole = await audited(double);
      expect(whole).toMatchObject({ verdict: 'complete', resumed: false });
      expect(evidence.requests).toBeLessThan(whole.asked - 15);
    });

    test('is kept over one that got no answer, and given up by one that got no further', async () => {
      const double = await begun();
      tired(double, 0);
      expect(await audited(double)).toMatchObject({ verdict: 'failed', resumed: true });
      tired(double, 1);
      expect(await audited(double)).toMatchObject({ verdict: 'incomplete', resumed: true });
      double.answer = ({ page }) => page;
      expect(await audited(double)).toMatchObject({ verdict: 'complete', resumed: false });
      await world.expectParties(double);
    });

    test('is given up by a walk, which is not held up by it', async () => {
      const double = await begun();
      double.answer = ({ page }) => page;
      const { verdict, evidence } = await world.walk(double, { list: 'parties' });
      expect({ verdict, kind: evidence.kind }).toEqual({ verdict: 'complete', kind: 'walk' });
      expect(await audited(double)).toMatchObject({ verdict: 'complete', resumed: false });
    });

    test('starts over at another node, whose cursors are others', async () => {
      const double = await begun();
      double.baseUrl = 'http://node-2';
      double.answer = ({ page }) => page;
      expect(await audited(double)).toMatchObject({ verdict: 'complete', resumed: false });
      await world.expectParties(double);
    });

    test('starts over where a guard spoke', async () => {
      const double = await begun();
      double.answer = ({ page }) => ({ ...page, endCursor: 'elsewhere' });
      expect(await audited(double)).toMatchObject({ verdict: 'suspicious', resumed: true });
      double.answer = ({ page }) => page;
      expect(await audited(double)).toMatchObject({ verdict: 'complete', resumed: false });
    });
  });

  test('a source that shows half of its list does not make the mirror mark the rest as gone', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(90);
    await world.walk(double, { list: 'parties' });
    double.lists.parties = parties(90).filter(({ rank }) => rank === undefined || rank % 2n === 0n);
    const { verdict, evidence } = await world.walk(double, { list: 'parties', kind: 'audit' });
    expect({ verdict, code: evidence.violations[0]?.code }).toEqual({
      verdict: 'suspicious',
      code: 'LIST_SHRANK',
    });
    expect(await goneParties()).toEqual([]);
  });

  test('an audit that was interrupted is finished by the next walk', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(120).filter(({ rank }) => rank !== 50n);
    await world.walk(double, { list: 'parties' });
    double.lists.parties = parties(120);
    let commits = 0;
    const checkpoint = (label: string): void => {
      if (label === 'committed' && (commits += 1) === 6) throw new Error('killed');
    };
    await expect(
      world.walk(double, { list: 'parties', kind: 'audit' }, { deps: { checkpoint } }),
    ).rejects.toThrow('killed');
    const { verdict, evidence } = await world.walk(double, { list: 'parties' });
    expect(evidence).toMatchObject({ kind: 'audit', resumed: true, audit: { missed: '1', gone: '0' } });
    expect(verdict).toBe('complete');
    await world.expectParties(double);
  });

  test('a row in another order than before keeps its place, and is reported', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(60);
    await world.walk(double, { list: 'parties' });
    const before = await world.placedParties();
    const swapped = parties(60);
    [swapped[30], swapped[31]] = [
      { ...swapped[31]!, rank: 30n, row: { ...swapped[31]!.row, cursor: swapped[30]!.row.cursor } },
      { ...swapped[30]!, rank: 31n, row: { ...swapped[30]!.row, cursor: swapped[31]!.row.cursor } },
    ];
    double.lists.parties = swapped;
    const { verdict } = await world.walk(double, { list: 'parties', kind: 'audit' });
    expect(verdict).toBe('suspicious');
    expect(await world.placedParties()).toEqual(before);
  });
});

describe('checkpoints', () => {
  test.each([5, 10, 23])(
    'missed ones are added, those under retention are marked, pages of %i',
    async (pageSize) => {
      const double = new ListDouble();
      double.lists.checkpoints = checkpoints(80).filter(({ row }) => row.group !== '330');
      await world.walk(double, { list: 'checkpoints' });
      double.lists.checkpoints = checkpoints(90).slice(20);
      const { verdict, evidence } = await world.walk(double, {
        list: 'checkpoints',
        kind: 'audit',
        pageSize,
      });
      expect(evidence).toMatchObject({ audit: { missed: '1' }, violations: [], missing: [] });
      expect(verdict).toBe('complete');
      const { rows } = await world.pool.query(
        'select count(*)::int as gone from mirror.checkpoints where gone_since is not null',
      );
      expect(rows[0].gone).toBeGreaterThan(0);
      const keys = new Set([...checkpoints(80), ...checkpoints(90)].map(({ row }) => row.key));
      expect(new Set(await world.checkpointKeys())).toEqual(keys);
      double.lists.checkpoints.push(checkpoint(905));
      expect(await world.walk(double, { list: 'checkpoints' })).toMatchObject({ verdict: 'complete' });
    },
  );
});
