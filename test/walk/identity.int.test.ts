/** Heights that go down: a node that lags, a network that began again, another network. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import {
  addParties,
  checkpoints,
  ListDouble,
  networkParty,
  parties,
  party,
  type DoubleRow,
} from './list-double.ts';
import { openMigrated, WalkWorld } from './walk-world.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new WalkWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

async function mirrored(): Promise<ListDouble> {
  const double = new ListDouble();
  double.lists.parties = parties(40);
  double.lists.checkpoints = checkpoints(60);
  await world.walk(double, { list: 'checkpoints' });
  await world.walk(double, { list: 'parties' });
  return double;
}

/** The same parties in another order, a new chain of checkpoints from its beginning. */
function began(again: ListDouble, order: (rows: DoubleRow[]) => DoubleRow[]): void {
  again.height = 400n;
  again.lists.checkpoints = checkpoints(20, { chain: 'b' });
  const ids = order(again.lists.parties.filter(({ rank }) => rank !== undefined));
  again.lists.parties = [
    ...ids.map(({ row }, index) => {
      const seen = party(500 + index);
      const cursor = JSON.parse(Buffer.from(seen.row.cursor, 'base64').toString()) as Record<string, string>;
      return {
        rank: seen.rank,
        row: { ...row, cursor: Buffer.from(JSON.stringify({ ...cursor, ID: row.key })).toString('base64') },
      };
    }),
    networkParty,
  ];
}

describe.each(['checkpoints', 'parties'] as const)('seen by the walk of %s', (list) => {
  test('a lagging node: nothing is stored, try later', async () => {
    const double = await mirrored();
    double.height = 900n;
    double.lists.checkpoints.length -= 5;
    double.lists.parties = parties(38);
    const { verdict, evidence } = await world.walk(double, { list });
    expect(verdict).toBe('suspicious');
    expect(evidence).toMatchObject({
      identity: { kind: 'lagging' },
      violations: [{ code: 'HEIGHT_WENT_DOWN' }],
      epoch: 1,
    });
  });

  test('a node that lags by a moment is asked again', async () => {
    const double = await mirrored();
    double.height = 996n;
    double.before = () => void (double.height = (double.height ?? 0n) + 2n);
    const { verdict, evidence } = await world.walk(double, { list });
    expect({ verdict, asOfHeight: evidence.asOfHeight }).toEqual({ verdict: 'complete', asOfHeight: '1000' });
  });

  test('a chain that began again: the next epoch, the old one is kept', async () => {
    const double = await mirrored();
    began(double, (rows) => rows.toReversed());
    const { verdict, evidence } = await world.walk(double, { list });
    expect(evidence).toMatchObject({ epoch: 2, identity: { kind: 'reset' } });
    expect(verdict).toBe('complete');
    const other = await world.walk(double, { list: list === 'parties' ? 'checkpoints' : 'parties' });
    expect(other).toMatchObject({ verdict: 'complete', evidence: { epoch: 2 } });
    await world.expectParties(double, 2);
    await world.expectCheckpoints(double, 2);
    expect(await world.placedParties(1)).toEqual(
      parties(40)
        .slice(0, -1)
        .map(({ row }) => row.key),
    );
    const { rows } = await world.pool.query('select count(*)::int as n from mirror.parties');
    expect(rows).toEqual([{ n: 41 }]);
  });

  test('another network is refused, until it is accepted', async () => {
    const double = await mirrored();
    double.height = 400n;
    double.lists.checkpoints = checkpoints(20, { chain: 'c' });
    double.lists.parties = [...Array.from({ length: 30 }, (_, index) => party(9_000 + index)), networkParty];
    const { verdict, evidence } = await world.walk(double, { list });
    expect(verdict).toBe('suspicious');
    expect(evidence).toMatchObject({
      identity: { kind: 'another' },
      violations: [{ code: 'OTHER_NETWORK' }],
      epoch: 1,
    });
    const { rows } = await world.pool.query('select count(*)::int as n from mirror.parties');
    expect(rows).toEqual([{ n: 41 }]);
    const accepted = await world.walk(double, { list, acceptNewNetwork: true });
    expect(accepted).toMatchObject({ verdict: 'complete', evidence: { epoch: 2 } });
  });

  test.each(['walk', 'audit'] as const)(
    'another network with greater heights is refused as well: %s',
    async (kind) => {
      const double = await mirrored();
      double.height = 90_000n;
      double.lists.checkpoints = checkpoints(20, { chain: 'c', from: 8_000 });
      double.lists.parties = [
        ...Array.from({ length: 30 }, (_, index) => party(9_000 + index)),
        networkParty,
      ];
      const { verdict, evidence } = await world.walk(double, { list, kind });
      expect(verdict).toBe('suspicious');
      expect(evidence).toMatchObject({ violations: [{ code: 'OTHER_NETWORK' }] });
      expect((await world.pool.query('select count(*)::int as n from mirror.parties')).rows).toEqual([
        { n: 41 },
      ]);
    },
  );

  test('without checkpoints on record a lower height cannot be told: nothing is stored', async () => {
    const double = await mirrored();
    await world.pool.query('delete from mirror.checkpoints');
    await world.pool.query(`delete from mirror.chains where list = 'checkpoints'`);
    double.height = 400n;
    addParties(double, 3);
    await world.pool.query(`update mirror.chains set head_height = 1000`);
    const { verdict, evidence } = await world.walk(double, { list });
    expect(verdict).toBe('suspicious');
    expect(evidence).toMatchObject({ identity: { kind: 'unknown' } });
  });
});
