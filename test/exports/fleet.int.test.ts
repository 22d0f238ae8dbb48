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

  test('that shows neither block nor age is exported as before', async () => {
    await using world = await World.open(database);
    world.source.entries = entries('2023-05-01T10:00:00Z', 10);
    const done = await world.export(NOW, request, changes);
    expect(done).toMatchObject({ verdict: 'complete', requests: 1 });
  });
});
