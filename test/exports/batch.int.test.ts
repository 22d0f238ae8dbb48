/**
 * Parties that are leased together: what is empty is written together, what has rows goes
 * its own way.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { LEASE_TIMES } from '../../src/concurrency/lease.ts';
import { exportParty } from '../../src/exports/export-party.ts';
import type { ExportOutcome } from '../../src/exports/export-context.ts';
import type { ExportRepository } from '../../src/exports/store/export-repository.ts';
import { BatchStore } from '../../src/exports/store/batch-store.ts';
import { ExportStore } from '../../src/exports/store/export-store.ts';
import { type ExportLease, takeLeases } from '../../src/catalog/leases.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { freshDatabase } from '../support/database.ts';
import { rowsRead } from '../support/measure/rows-read.ts';
import { signal, World } from './export-world.ts';
import { at, clockAt, entries } from './ledger-double.ts';
import {
  coveredParties,
  coveredRanges,
  exportLeaseEnds,
  recordedExports,
} from '../support/mirror-state.ts';
import {
  addCoverage,
  addIdleLedgers,
  emptyLists,
  takeOverExport,
} from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const NOW = '2023-05-10 00:00:00+00';
const NEXT = '2023-05-11 00:00:00+00';
const PARTIES = ['a1', 'a2', 'a3'].map((digits) => digits.repeat(32));
const [FIRST = '', SECOND = '', THIRD = ''] = PARTIES;

interface Opened extends AsyncDisposable {
  readonly world: World;
  readonly warehouse: Warehouse;
  readonly batch: BatchStore;
  export(
    partyId: string,
    now?: string,
    repository?: ExportRepository,
  ): Promise<ExportOutcome>;
}

async function open(): Promise<Opened> {
  await using stack = new AsyncDisposableStack();
  const world = stack.use(await World.open(database));
  const warehouse = stack.use(
    openWarehouse({ url: database.url, onIdleError: () => undefined }),
  );
  const batch = stack.use(await BatchStore.open(warehouse.db, PARTIES));
  const owned = stack.move();
  return {
    world,
    warehouse,
    batch,
    export: (partyId, now = NOW, repository = batch) => {
      const request = {
        partyId,
        runId: randomUUID(),
        clock: clockAt(at(now), 0n),
      };
      return exportParty(request, world.deps({ repository }), signal);
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function covered({ world }: Opened): Promise<string[]> {
  return coveredParties(world.pool);
}

async function leased({ world }: Opened): Promise<number> {
  const ends = await exportLeaseEnds(world.pool);
  return ends.filter((end) => end.getTime() > Date.now()).length;
}

test('empty answers are true once they are written, all at once, and their leases are given back', async () => {
  await using opened = await open();
  for (const party of PARTIES)
    expect((await opened.export(party)).verdict).toBe('complete');
  expect([await covered(opened), await leased(opened)]).toEqual([[], 3]);
  expect(await opened.batch.write()).toEqual([]);
  expect([await covered(opened), await leased(opened)]).toEqual([PARTIES, 0]);
  expect(await recordedExports(opened.world.pool)).toMatchObject(
    PARTIES.map((partyId) => ({ partyId, isAsked: true })),
  );
});

test('an idle party keeps one row of coverage, however many nightly runs ask', async () => {
  await using opened = await open();
  for (const party of PARTIES) await opened.export(party);
  await opened.batch.write();
  await using next = await BatchStore.open(opened.warehouse.db, PARTIES);
  for (const party of PARTIES) await opened.export(party, NEXT, next);
  expect(await next.write()).toEqual([]);
  const ends = (await coveredRanges(opened.world.pool)).map(({ to }) =>
    to.toISOString().slice(0, 10),
  );
  expect(ends).toEqual(PARTIES.map(() => '2023-05-11'));
});

test('a party with rows is published at once, and counts at the source only while it asks', async () => {
  await using opened = await open();
  opened.world.source.entries = entries('2023-05-01 00:00:00+00', 20).map(
    (entry) => ({
      ...entry,
      from: SECOND,
    }),
  );
  await opened.export(FIRST);
  const { rows, objectKeys } = await opened.export(SECOND);
  expect([rows, objectKeys.length > 0, await covered(opened)]).toMatchObject([
    20n,
    true,
    [SECOND],
  ]);
  const exports = await recordedExports(opened.world.pool);
  expect(exports.filter(({ isAtSource }) => isAtSource)).toEqual([]);
  await opened.batch.write();
  expect(await covered(opened)).toEqual([FIRST, SECOND]);
});

test('answers of a process that ended before it wrote them are asked for again', async () => {
  await using opened = await open();
  await opened.export(FIRST);
  await opened.batch[Symbol.asyncDispose]();
  expect([await covered(opened), await leased(opened)]).toEqual([[], 0]);
  const before = opened.world.source.asked.length;
  await opened.export(FIRST, NOW, new ExportStore(opened.warehouse.db));
  expect([opened.world.source.asked.length, await covered(opened)]).toEqual([
    before + 1,
    [FIRST],
  ]);
});

test('a party that another has taken over is named, and the others are written', async () => {
  await using opened = await open();
  for (const party of PARTIES) await opened.export(party);
  await takeOverExport(opened.world.pool, SECOND);
  expect(await opened.batch.write()).toEqual([SECOND]);
  expect(await covered(opened)).toEqual([FIRST, THIRD]);
});

test('a party whose lease was lost before it was given back leaves the next one alone', async () => {
  await using opened = await open();
  const next = 'c1'.repeat(32);
  const { batch, world } = opened;
  // As an export does whose lease has run out.
  batch.release = async () => undefined;
  await opened.export(FIRST);
  await takeOverExport(world.pool, FIRST);
  world.source.entries = entries('2023-05-01 00:00:00+00', 20).map((entry) => ({
    ...entry,
    from: next,
  }));
  expect((await opened.export(next)).verdict).toBe('complete');
  expect(await covered(opened)).toEqual([next]);
});

test('a party whose coverage has changed meanwhile is named, and the others are written', async () => {
  await using opened = await open();
  for (const party of PARTIES) await opened.export(party);
  const range = {
    from_time: '2023-01-01',
    to_time: '2024-01-01',
    sides: 'from',
  };
  await addCoverage(opened.world.pool, { party_id: THIRD, ...range });
  expect(await opened.batch.write()).toEqual([THIRD]);
  expect([await covered(opened), await leased(opened)]).toEqual([PARTIES, 0]);
});

test('other processes wait until the answers of a batch are written', async () => {
  await using opened = await open();
  await opened.export(FIRST);
  const other = new ExportStore(opened.warehouse.db);
  const lease = await other.acquire({ partyId: 'b1'.repeat(32) });
  if (lease === undefined) throw new Error('not leased');
  expect(await other.enterSource(lease, 1)).toBe(false);
  await opened.batch.write();
  expect(await other.enterSource(lease, 1)).toBe(true);
});

test('an export that was not begun can be given back, and another process does it', async () => {
  await using opened = await open();
  await opened.export(FIRST);
  await opened.batch.releaseUnstarted();
  expect(await leased(opened)).toBe(1);
  await opened.batch.write();
  await opened.export(SECOND, NOW, new ExportStore(opened.warehouse.db));
  expect(await covered(opened)).toEqual([FIRST, SECOND]);
});

test('taking leases reads no more rows where there are more parties', async () => {
  await using opened = await open();
  const { pool } = opened.world;
  const all = Array.from({ length: 5_000 }, (_, index) =>
    index.toString(16).padStart(64, '0'),
  );
  await addIdleLedgers(pool, all);
  await pool.query('analyze');
  const ids = all.slice(0, 10);
  const read = await opened.warehouse.db.transaction().execute(async (tx) => {
    const taken = await takeLeases(tx, ids, undefined, undefined);
    expect(taken).toHaveLength(10);
    return rowsRead(tx);
  });
  expect(read).toBeLessThan(200);
  await emptyLists(pool);
});

test('a party that is leased once more after its export was written is given back as any other', async () => {
  await using opened = await open();
  await opened.export(FIRST);
  await opened.batch.write();
  const again = (await opened.batch.acquire({ partyId: FIRST })) as ExportLease;
  expect([again.scope.partyId, await leased(opened)]).toEqual([FIRST, 3]);
  await opened.batch.release(again);
  expect(await leased(opened)).toBe(2);
});

test('leases that are taken while a renewal is under way are kept', async () => {
  await using world = await World.open(database);
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
    poolMax: 1,
  });
  const locker = await world.pool.connect();
  await locker.query('begin; lock table mirror.exports in share mode');
  const opening = BatchStore.open(warehouse.db, PARTIES);
  // Beyond the first renewal, which waits for the one connection.
  await sleep(LEASE_TIMES.renewEveryMs + 1_000);
  await locker.query('commit');
  locker.release();
  await using batch = await opening;
  await sleep(500);
  for (const partyId of PARTIES)
    expect(await batch.acquire({ partyId })).toMatchObject({
      scope: { partyId },
    });
});
