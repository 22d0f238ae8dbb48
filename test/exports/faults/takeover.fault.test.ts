import { expect, test } from 'vitest';
import { LEASE_MS } from '../../../src/concurrency/lease.ts';
import { freshDatabase } from '../../support/database.ts';
import { World } from '../export-world.ts';
import { killAt, LARGE, NOW } from './killed-case.ts';
import { row12 } from '../ledger-double.ts';
import { exportLeaseEnds } from '../../support/mirror-state.ts';

/** The database's clock and ours are one, save for rounding. */
const CLOCKS_APART_MS = 10;
/** As `mirror.is_leased` has it. */
const SILENT_MS = 10_000;
const database = await freshDatabase({ isMigrated: true });

test('a killed worker’s export is taken over once its lease was not renewed for ten seconds, and not before', async () => {
  await using world = await World.open(database);
  world.source.entries = LARGE;
  await killAt(world, database.url, 'asked', 1);
  const ends = await exportLeaseEnds(world.pool);
  expect(ends).toHaveLength(1);
  const untilMs = Math.max(...ends.map((end) => end.getTime()));
  expect(untilMs).toBeLessThanOrEqual(Date.now() + LEASE_MS);
  const freeAtMs = untilMs - LEASE_MS + SILENT_MS;
  let takenAtMs = 0;
  world.source.spoils.push((csv) => {
    takenAtMs = Date.now();
    return [csv];
  });
  await world.export(NOW);
  expect(takenAtMs).toBeGreaterThan(freeAtMs - CLOCKS_APART_MS);
  expect(await world.rows()).toEqual(LARGE.map(row12).toSorted());
});
