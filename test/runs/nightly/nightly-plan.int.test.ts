/** Which parties a nightly run asks, and in which order. */
import { Kysely, PostgresDialect } from 'kysely';
import { Pool } from 'pg';
import { beforeEach, describe, expect, test } from 'vitest';
import { everyPartyFits } from '../../../src/runs/nightly/nightly-preview.ts';
import {
  countDue,
  planNightly,
} from '../../../src/runs/store/nightly/nightly-plan.ts';
import { NightlyStore } from '../../../src/runs/store/nightly/nightly-store.ts';
import { freshDatabase } from '../../support/database.ts';
import {
  addExports,
  addParties,
  daysAgo,
  emptyLedgers,
  emptyLists,
  emptyRuns,
  markPartyGone,
  setSourceProfile,
} from '../../support/mirror-arrange.ts';
import { recordedExports } from '../../support/mirror-state.ts';
import { openJobWorld } from '../stages-double.ts';
import { numberedNames } from '../../support/numbered-names.ts';

const database = await freshDatabase({ isMigrated: true });
const { pool } = database;
const nextName = numberedNames('plan');
const openWorld = (): ReturnType<typeof openJobWorld> =>
  openJobWorld(database.url, nextName(), {});

beforeEach(async () => {
  await emptyRuns(pool);
  await emptyLists(pool);
  await emptyLedgers(pool);
});

describe('the plan of a nightly run', () => {
  const id = (digit: string): string => digit.repeat(64);

  test('puts active parties first and leaves out idle ones that are not due', async () => {
    await addParties(pool, ['1', '2', '3', '4', '5'].map(id));
    const asked = {
      last_asked_at: daysAgo(1),
      last_entry_at: null,
      idle_nights: 0,
      quarantined_at: null,
    };
    const idle = { ...asked, last_entry_at: daysAgo(90) };
    await addExports(pool, [
      { ...asked, party_id: id('1'), last_entry_at: daysAgo(1) },
      { ...idle, party_id: id('2'), idle_nights: 5 },
      {
        ...idle,
        party_id: id('3'),
        last_asked_at: daysAgo(20),
        idle_nights: 4,
      },
      { ...asked, party_id: id('4'), quarantined_at: daysAgo(0) },
    ]);
    await using world = await openWorld();
    const run = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    const request = {
      runId: run.runId,
      partyIds: undefined,
      exportsMax: undefined,
      everyParty: false,
      idleNightsMax: 28,
    };
    expect(await countDue(world.deps.db, request)).toEqual({
      parties: 5,
      due: 4,
    });
    expect(await world.deps.nightly.counts(run.runId, 0)).toMatchObject({
      due: 0,
      queued: 0,
    });
    expect(await planNightly(world.deps.db, request)).toMatchObject({
      parties: 5,
      notDue: 1,
      asked: 4,
      deferred: 0,
    });
    expect(await world.deps.nightly.take(run.runId, 10)).toEqual([
      { partyId: id('1'), isIdle: false },
      { partyId: id('5'), isIdle: true },
      { partyId: id('4'), isIdle: false },
      { partyId: id('3'), isIdle: true },
    ]);
  });

  test('asks those first whose turn lies the furthest back, whatever came of it', async () => {
    const parties = ['1', '2', '3', '4'].map(id);
    await addParties(pool, parties);
    // Never answered: two were tried yesterday and the night ended with them.
    const never = { asset_id: null, last_asked_at: null, idle_nights: 0 };
    await addExports(pool, [
      { ...never, party_id: id('1'), last_tried_at: daysAgo(1) },
      { ...never, party_id: id('2'), last_tried_at: daysAgo(2) },
      { ...never, party_id: id('3'), last_tried_at: null },
    ]);
    await using world = await openWorld();
    const { runId } = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    await planNightly(world.deps.db, {
      runId,
      partyIds: undefined,
      exportsMax: undefined,
      everyParty: true,
      idleNightsMax: 28,
    });
    const taken = await world.deps.nightly.take(runId, 10);
    expect(taken.map(({ partyId }) => partyId)).toEqual(
      ['3', '4', '2', '1'].map(id),
    );
  });

  test('leaves out parties that the source removed, and keeps configured ones', async () => {
    await addParties(pool, ['1', '2'].map(id));
    await markPartyGone(pool, id('2'));
    await using world = await openWorld();
    const plan = async (partyIds: readonly string[] | undefined) => {
      const { runId } = await world.deps.runs.create({
        kind: 'nightly',
        subject: 'now',
      });
      await planNightly(world.deps.db, {
        runId,
        partyIds,
        exportsMax: undefined,
        everyParty: true,
        idleNightsMax: 28,
      });
      const taken = await world.deps.nightly.take(runId, 10);
      await world.deps.runs.requestCancel(runId);
      return taken.map(({ partyId }) => partyId);
    };
    expect(await plan(undefined)).toEqual([id('1')]);
    expect(await plan([id('2')])).toEqual([id('2')]);
  });

  test('goes by all assets together where the source demands one, and otherwise by none', async () => {
    const parties = ['1', '2', '3'].map(id);
    const never = {
      asset_id: null,
      last_asked_at: null,
      last_entry_at: null,
      idle_nights: 0,
    };
    const idle = {
      last_asked_at: daysAgo(1),
      last_entry_at: daysAgo(90),
      idle_nights: 5,
    };
    await addExports(pool, [
      { ...never, party_id: id('1') },
      { ...idle, party_id: id('1'), asset_id: id('a') },
      { ...idle, party_id: id('1'), asset_id: id('b') },
      {
        ...idle,
        party_id: id('2'),
        asset_id: id('a'),
        last_entry_at: daysAgo(1),
        idle_nights: 0,
      },
    ]);
    await using world = await openWorld();
    const order = async (): Promise<unknown> => {
      const run = await world.deps.runs.create({
        kind: 'nightly',
        subject: 'now',
      });
      await planNightly(world.deps.db, {
        runId: run.runId,
        partyIds: parties,
        exportsMax: undefined,
        everyParty: false,
        idleNightsMax: 28,
      });
      const taken = await world.deps.nightly.take(run.runId, 10);
      await world.deps.runs.requestCancel(run.runId);
      return taken.map(({ partyId }) => partyId.slice(0, 1));
    };
    // Nobody was asked for everything yet.
    expect(await order()).toEqual(['1', '2', '3']);
    await setSourceProfile(pool, { assetRequired: true });
    // The second is active, the third new, the first idle and not due.
    expect(await order()).toEqual(['2', '3']);
    await setSourceProfile(pool, {});
  });

  test.each([1_000, 8_000])(
    'hands out exactly as many as are wanted of %i, without reading the rest',
    async (due) => {
      const ids = Array.from({ length: due }, (_, index) =>
        (index + 1).toString(16).padStart(64, '0'),
      );
      await addParties(pool, ids, 1);
      await using world = await openWorld();
      const plan = async (): Promise<string> => {
        const run = await world.deps.runs.create({
          kind: 'nightly',
          subject: 'now',
        });
        const all = {
          partyIds: undefined,
          exportsMax: undefined,
          everyParty: true,
          idleNightsMax: 28,
        };
        await planNightly(world.deps.db, { ...all, runId: run.runId });
        await world.deps.runs.finish(run.runId, 'incomplete', {});
        return run.runId;
      };
      await plan();
      // The statistics of the table know the first run only.
      const second = await plan();
      // One connection: what a backend did is told when that backend is asked.
      await using counted = countedStore();
      const before = await counted.buffers();
      const taken = await counted.nightly.take(second, 200);
      const buffers = (await counted.buffers()) - before;
      expect([taken.length, taken[0]?.partyId]).toEqual([
        200,
        '1'.padStart(64, '0'),
      ]);
      expect(await world.deps.nightly.counts(second, due)).toMatchObject({
        due: due - 200,
        queued: 200,
      });
      // Some ten for each row that is changed, whatever waits behind them.
      expect(buffers).toBeLessThan(6_000);
    },
  );

  test('defers the parties beyond its limit to the next nightly run, and counts them', async () => {
    await addParties(pool, ['1', '2', '3', '4', '5'].map(id));
    await addExports(pool, [
      { party_id: id('1'), last_asked_at: '2023-01-01Z' },
    ]);
    await using world = await openWorld();
    const run = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    const request = {
      runId: run.runId,
      partyIds: undefined,
      exportsMax: 2,
      everyParty: true,
      idleNightsMax: 28,
    };
    const plan = { asked: 2, deferred: 3, deferredNeverAsked: 2 };
    expect(await planNightly(world.deps.db, request)).toMatchObject(plan);
    // Delivered again, it finds what was planned.
    await emptyLists(pool);
    expect(await planNightly(world.deps.db, request)).toMatchObject(plan);
    expect(await world.deps.nightly.take(run.runId, 10)).toHaveLength(2);
  });

  test('counts the nightly runs without new entries, and starts again with an entry', async () => {
    await addExports(
      pool,
      ['1', '2'].map((digit) => ({ party_id: id(digit), idle_nights: 3 })),
    );
    await using world = await openWorld();
    const run = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    await planNightly(world.deps.db, {
      runId: run.runId,
      partyIds: [id('1'), id('2')],
      exportsMax: undefined,
      everyParty: true,
      idleNightsMax: 28,
    });
    const idle = {
      partyId: id('1'),
      state: 'done',
      outcome: { rows: '0' },
    } as const;
    await world.deps.nightly.settle(run.runId, [idle]);
    await world.deps.nightly.settle(run.runId, [
      idle,
      { ...idle, partyId: id('2'), outcome: { rows: '9' } },
    ]);
    expect(
      (await recordedExports(pool)).map(({ idleNights }) => idleNights),
    ).toEqual([4, 0]);
  });

  test('asks every party while the window is long enough', () => {
    expect(everyPartyFits(1_000_000, null)).toBe(true);
    expect(everyPartyFits(2_000, 10)).toBe(true);
    expect(everyPartyFits(2_200, 10)).toBe(false);
  });
});

function countedStore(): AsyncDisposable & {
  nightly: NightlyStore;
  buffers: () => Promise<number>;
} {
  const singlePool = new Pool({
    connectionString: database.url,
    max: 1,
  });
  const db = new Kysely<unknown>({
    dialect: new PostgresDialect({ pool: singlePool }),
  });
  return {
    nightly: new NightlyStore(db),
    buffers: async () => {
      await singlePool.query('select pg_stat_force_next_flush()');
      const { rows } = await singlePool.query<{ buffers: string }>(
        `select sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0)) as buffers
           from pg_statio_all_tables where relname like 'nightly_units%'`,
      );
      return Number(rows[0]?.buffers ?? 0);
    },
    [Symbol.asyncDispose]: () => db.destroy(),
  };
}
