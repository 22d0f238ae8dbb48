import { expect, test } from 'vitest';
import { LEASE_MS } from '../../src/export/lease.ts';
import { freshDatabase } from '../support/database.ts';
import { World } from './export-world.ts';
import { killAt, LARGE, NOW } from './killed-case.ts';
import { row12 } from './ledger-double.ts';

const database = await freshDatabase({ isMigrated: true });
/** One term, and what a busy machine adds. */
const TERMS_MAX = 3;

test('a killed worker’s unit and slot are taken over as soon as its leases have run out', async () => {
  await using world = await World.open(database);
  world.source.entries = LARGE;
  await killAt(world, database.url, 'asked', 1);
  const startedMs = performance.now();
  let takenMs = Number.POSITIVE_INFINITY;
  world.source.spoils.push((csv) => {
    takenMs = performance.now() - startedMs;
    return [csv];
  });
  await world.export(NOW);
  expect(takenMs).toBeLessThan(TERMS_MAX * LEASE_MS);
  expect(await world.rows()).toEqual(LARGE.map(row12).toSorted());
});
