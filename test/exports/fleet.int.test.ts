/** Exports from a fleet: a node that is behind closes nothing and replaces nothing. */
import { describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { World } from './export-world.ts';
import { at, clockAt, entries, row12 } from './ledger-double.ts';

const database = await freshDatabase({ isMigrated: true });
const NOW = '2023-05-02T00:00:00Z';
const BEHIND = { blockHeight: 360n, blockTime: at('2023-05-01T22:00:00Z') };
const CURRENT = { blockHeight: 400n, blockTime: at(NOW) };
const request = { clock: { ...clockAt(at(NOW)), height: 400n } };
const changes = { pauseMs: () => 0 };

describe('an export from a fleet', () => {
  test("of nodes that are all behind fails as the source's, and closes nothing", async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 10);
    world.source.heads.push(...Array.from({ length: 20 }, () => BEHIND));
    const exporting = world.export(NOW, request, changes);
    await expect(exporting).rejects.toMatchObject({ code: 'SOURCE_BEHIND' });
    expect(await world.coverage()).toEqual([]);
    const { rows } = await world.pool.query<{ attempts: number }>(
      'select attempts from mirror.exports',
    );
    expect(rows).toEqual([{ attempts: 0 }]);
  });

  test('asks the next node, and believes the one that has come so far', async () => {
    await using world = await World.open(database);
    const all = entries('2023-05-01T10:00:00Z', 10);
    world.source.entries = all;
    world.source.heads.push(BEHIND, BEHIND, CURRENT);
    const done = await world.export(NOW, request, changes);
    expect(done).toMatchObject({ verdict: 'complete', requests: 3 });
    expect(await world.rows()).toEqual(all.map(row12).toSorted());
  });

  test('a node that is behind takes no row away that another one showed', async () => {
    await using world = await World.open(database);
    const all = entries('2023-05-01T10:00:00Z', 10);
    world.source.entries = all;
    await world.export(NOW, request, changes);
    const covered = await world.coverage();
    world.source.entries = all.slice(0, 4);
    world.source.heads.push(...Array.from({ length: 20 }, () => BEHIND));
    const later = {
      clock: { ...clockAt(at('2023-05-03T00:00:00Z')), height: 800n },
    };
    const exporting = world.export('2023-05-03T00:00:00Z', later, changes);
    await expect(exporting).rejects.toMatchObject({ code: 'SOURCE_BEHIND' });
    expect(await world.coverage()).toEqual(covered);
    expect(await world.rows()).toEqual(all.map(row12).toSorted());
  });

  /** The answer of a node that keeps no entry of the first of May. */
  const pruned = (csv: Buffer): Iterable<Buffer> => {
    const lines = csv.toString().split('\n');
    return [
      Buffer.from(lines.filter((line) => !/2023-05-01/.test(line)).join('\n')),
    ];
  };

  /** A ledger whose first answer, the only one so far, came from a pruned node. */
  async function openPruned() {
    await using stack = new AsyncDisposableStack();
    const world = stack.use(await World.open(database));
    const old = entries('2023-05-01T10:00:00Z', 2);
    const fresh = entries('2023-05-02T10:00:00Z', 3);
    world.source.entries = old;
    world.source.spoils.push(pruned);
    await world.export('2023-05-02T00:00:00Z');
    world.source.entries = [...old, ...fresh];
    const owned = stack.move();
    return {
      world,
      written: [...old, ...fresh].map(row12).toSorted(),
      [Symbol.asyncDispose]: () => owned.disposeAsync(),
    };
  }

  test.each([
    ['a later answer lacks them', [undefined, pruned]],
    [
      'the comparison of what is known lacks them',
      [undefined, undefined, pruned],
    ],
  ])(
    'publishes the rows that one answer showed, although %s',
    async (_, spoils) => {
      await using ledger = await openPruned();
      const { world, written } = ledger;
      world.source.spoils.push(...spoils);
      expect(
        await world.export('2023-05-03T00:00:00Z', {}, changes),
      ).toMatchObject({ verdict: 'suspicious' });
      expect(await world.rows()).toEqual(written);
      expect(
        await world.export('2023-05-04T00:00:00Z', {}, changes),
      ).toMatchObject({ verdict: 'complete', requests: 1 });
    },
  );

  test('publishes the rows that one answer showed in the next night, if all others of this night lack them', async () => {
    await using ledger = await openPruned();
    const { world, written } = ledger;
    const others = Array.from({ length: 20 }, () => pruned);
    world.source.spoils.push(undefined, ...others);
    const night = () => world.export('2023-05-03T00:00:00Z', {}, changes);
    expect(await night()).toMatchObject({ verdict: 'suspicious' });
    expect(await world.rows()).not.toEqual(written);
    world.source.spoils.length = 0;
    expect(
      await world.export('2023-05-04T00:00:00Z', {}, changes),
    ).toMatchObject({ verdict: 'suspicious' });
    expect(await world.rows()).toEqual(written);
    expect(
      await world.export('2023-05-05T00:00:00Z', {}, changes),
    ).toMatchObject({ verdict: 'complete', requests: 1 });
  });

  test('that has lost rows which one answer showed is believed after three nights', async () => {
    await using ledger = await openPruned();
    const { world } = ledger;
    world.source.spoils.push(undefined);
    world.source.spoils.push(...Array.from({ length: 40 }, () => pruned));
    const verdicts: string[] = [];
    for (const day of ['03', '04', '05', '06'])
      verdicts.push(
        (await world.export(`2023-05-${day}T00:00:00Z`, {}, changes)).verdict,
      );
    expect(verdicts).toEqual([
      'suspicious',
      'suspicious',
      'suspicious',
      'complete',
    ]);
    expect(await world.rows()).toHaveLength(3);
  });

  test('that shows neither block nor age is exported as before', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 10);
    const done = await world.export(NOW, request, changes);
    expect(done).toMatchObject({ verdict: 'complete', requests: 1 });
  });
});
