/** Parties that are leased together: what is empty is written together, what has rows goes its own way. */
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { exportParty } from '../../src/export/export-party.ts';
import type { ExportOutcome } from '../../src/export/request.ts';
import { BatchStore } from '../../src/export/store/batch-store.ts';
import { ExportStore } from '../../src/export/store/export-store.ts';
import { takeLeases } from '../../src/export/store/leases.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { freshDatabase } from '../support/database.ts';
import { rowsRead } from '../support/rows-read.ts';
import { signal, World } from './export-world.ts';
import { at, entries } from './ledger-double.ts';
import { coveredParties } from '../support/mirror-state.ts';

const database = await freshDatabase({ isMigrated: true });
const NOW = '2023-05-10 00:00:00+00';
const NEXT = '2023-05-11 00:00:00+00';
const PARTIES = ['a1', 'a2', 'a3'].map((digits) => digits.repeat(32));
const [FIRST = '', SECOND = '', THIRD = ''] = PARTIES;

interface Opened extends AsyncDisposable {
  readonly world: World;
  readonly warehouse: Warehouse;
  readonly batch: BatchStore;
  export(partyId: string, now?: string, repository?: ExportStore): Promise<ExportOutcome>;
}

async function open(): Promise<Opened> {
  await using stack = new AsyncDisposableStack();
  const world = stack.use(await World.open(database));
  const warehouse = stack.use(openWarehouse({ url: database.url, onIdleError: () => undefined }));
  const batch = stack.use(await BatchStore.open(warehouse.db, PARTIES));
  const owned = stack.move();
  return {
    world,
    warehouse,
    batch,
    export: (partyId, now = NOW, repository = batch) => {
      const request = { partyId, runId: randomUUID(), seenTime: at(now), closedTo: at(now) };
      return exportParty(request, world.deps({ repository }), signal);
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function covered({ world }: Opened): Promise<string[]> {
  return coveredParties(world.pool);
}

async function leased({ world }: Opened): Promise<number> {
  const { rowCount } = await world.pool.query(
    'select from mirror.exports where lease_until > clock_timestamp()',
  );
  return rowCount ?? 0;
}

test('empty answers are true once they are written, all at once, and their leases are given back', async () => {
  await using opened = await open();
  for (const party of PARTIES) expect((await opened.export(party)).verdict).toBe('complete');
  expect([await covered(opened), await leased(opened)]).toEqual([[], 3]);
  expect(await opened.batch.write()).toEqual([]);
  expect([await covered(opened), await leased(opened)]).toEqual([PARTIES, 0]);
  const { rows } = await opened.world.pool.query<{ asked: boolean; seq: string }>(
    'select last_asked_at is not null as asked, coverage_seq::text as seq from mirror.exports',
  );
  expect(rows).toEqual(PARTIES.map(() => ({ asked: true, seq: '1' })));
});

test('an idle party keeps one row of coverage, night after night', async () => {
  await using opened = await open();
  for (const party of PARTIES) await opened.export(party);
  await opened.batch.write();
  await using next = await BatchStore.open(opened.warehouse.db, PARTIES);
  for (const party of PARTIES) await opened.export(party, NEXT, next);
  expect(await next.write()).toEqual([]);
  const { rows } = await opened.world.pool.query<{ to: string }>(
    `select to_char(to_time at time zone 'UTC', 'YYYY-MM-DD') as to from mirror.coverage`,
  );
  expect(rows).toEqual(PARTIES.map(() => ({ to: '2023-05-11' })));
});

test('a party with rows is published at once, and counts at the source only while it asks', async () => {
  await using opened = await open();
  opened.world.source.entries = entries('2023-05-01 00:00:00+00', 20).map((entry) => ({
    ...entry,
    from: SECOND,
  }));
  await opened.export(FIRST);
  const { rows, objectKeys } = await opened.export(SECOND);
  expect([rows, objectKeys.length > 0, await covered(opened)]).toMatchObject([20n, true, [SECOND]]);
  const { rowCount } = await opened.world.pool.query('select from mirror.exports where is_at_source');
  expect(rowCount).toBe(0);
  await opened.batch.write();
  expect(await covered(opened)).toEqual([FIRST, SECOND]);
});

test('a process that ends before it has written has proven nothing: it is asked for again', async () => {
  await using opened = await open();
  await opened.export(FIRST);
  await opened.batch[Symbol.asyncDispose]();
  expect([await covered(opened), await leased(opened)]).toEqual([[], 0]);
  const before = opened.world.source.asked.length;
  await opened.export(FIRST, NOW, new ExportStore(opened.warehouse.db));
  expect([opened.world.source.asked.length, await covered(opened)]).toEqual([before + 1, [FIRST]]);
});

test('a party that another has taken over is named, and the others are written', async () => {
  await using opened = await open();
  for (const party of PARTIES) await opened.export(party);
  await opened.world.pool.query(
    `update mirror.exports set lease_token = gen_random_uuid() where party_id = '${SECOND}'`,
  );
  expect(await opened.batch.write()).toEqual([SECOND]);
  expect(await covered(opened)).toEqual([FIRST, THIRD]);
});

test('a party whose coverage has changed meanwhile is named, and the others are written', async () => {
  await using opened = await open();
  for (const party of PARTIES) await opened.export(party);
  await opened.world.pool.query(
    `insert into mirror.coverage (party_id, from_time, to_time, sides) values ('${THIRD}', '2023-01-01', '2024-01-01', 'from')`,
  );
  expect(await opened.batch.write()).toEqual([THIRD]);
  expect([await covered(opened), await leased(opened)]).toEqual([PARTIES, 0]);
});

test('others wait for their turn until what was asked is written', async () => {
  await using opened = await open();
  await opened.export(FIRST);
  const other = new ExportStore(opened.warehouse.db);
  const lease = await other.acquire({ partyId: 'b1'.repeat(32) }, 10_000);
  if (lease === undefined) throw new Error('not leased');
  expect(await other.enterSource(lease, 1)).toBe(false);
  await opened.batch.write();
  expect(await other.enterSource(lease, 1)).toBe(true);
});

test('what was not begun can be given back, and another exports it', async () => {
  await using opened = await open();
  await opened.export(FIRST);
  await opened.batch.giveBack();
  expect(await leased(opened)).toBe(1);
  await opened.batch.write();
  await opened.export(SECOND, NOW, new ExportStore(opened.warehouse.db));
  expect(await covered(opened)).toEqual([FIRST, SECOND]);
});

test('what a lease reads does not grow with the parties that there are', async () => {
  await using opened = await open();
  await opened.world.pool.query(
    `insert into mirror.parties (party_id, first_epoch)
     select encode(sha256(('party ' || n)::bytea), 'hex'), 1 from generate_series(1, 5000) n`,
  );
  await opened.world.pool.query(
    'insert into mirror.exports (party_id) select party_id from mirror.parties on conflict do nothing',
  );
  await opened.world.pool.query('analyze mirror.parties, mirror.exports');
  const { rows } = await opened.world.pool.query<{ party_id: string }>(
    'select party_id from mirror.exports order by party_id limit 10',
  );
  const ids = rows.map((row) => row.party_id);
  const read = await opened.warehouse.db.transaction().execute(async (tx) => {
    const taken = await takeLeases(tx, ids, undefined, { leaseMs: 60_000, holder: undefined });
    expect(taken).toHaveLength(10);
    return rowsRead(tx);
  });
  expect(read).toBeLessThan(200);
  await opened.world.pool.query('delete from mirror.parties');
});
