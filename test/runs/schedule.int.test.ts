/** Scheduled times that are missed, reports that are posted, parties that are idle: over real Postgres. */
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { Kysely, PostgresDialect } from 'kysely';
import { Pool } from 'pg';
import { beforeEach, describe, expect, it } from 'vitest';
import { makeUpMissedAudits, makeUpMissedRun } from '../../src/runs/nightly/make-up-missed.ts';
import { readConfig } from '../../src/config/environment.ts';
import { sendNotices } from '../../src/runs/report/notify.ts';
import { everyPartyFits } from '../../src/runs/nightly/nightly-exports.ts';
import { lastScheduledMs } from '../../src/runs/nightly/schedule.ts';
import type { MirrorSchema } from '../../src/postgres/schema.ts';
import { NightlyStore } from '../../src/runs/store/nightly-store.ts';
import { posterTo } from '../../src/runs/report/post-report.ts';
import { freshDatabase } from '../support/database.ts';
import { openJobWorld } from './stages-double.ts';
import { recordedExports } from '../support/mirror-state.ts';
import {
  addExports,
  addParties,
  addRun,
  daysAgo,
  emptyLedgers,
  emptyLists,
  emptyRuns,
  removeQueuedRuns,
  setMirrorCreatedAt,
  setSourceProfile,
  type Row,
} from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const { pool } = database;
const SCHEDULE = { pattern: '0 2 * * *', tz: 'UTC' };
const MORNING_MS = Date.UTC(2026, 10, 21, 8);
let worlds = 0;
const openWorld = (): ReturnType<typeof openJobWorld> =>
  openJobWorld(database.url, `schedule-${(worlds += 1)}`, {});

beforeEach(async () => {
  await emptyRuns(pool);
  await emptyLists(pool);
  await emptyLedgers(pool);
  await setMirrorCreatedAt(pool, '2026-01-01');
});

/** Over, unless the row says otherwise. */
function addNight(row: Row<'runs'>): Promise<string> {
  return addRun(pool, { kind: 'nightly', subject: 'now', state: 'done', ...row });
}

describe('a missed scheduled time', () => {
  it('is made up once', async () => {
    await using world = await openWorld();
    await makeUpMissedRun(SCHEDULE, world.deps, MORNING_MS);
    await makeUpMissedRun(SCHEDULE, world.deps, MORNING_MS);
    const nights = await world.deps.runs.list({ kind: 'nightly', limit: 10 });
    expect(nights.map((night) => night.scheduleKey)).toEqual(['nightly 2026-11-21T02:00:00.000Z']);
    expect((await world.queues.counts('nightly'))['prioritized']).toBe(1);
  });

  it.each([
    ['a run came after it', () => addNight({ verdict: 'complete', finished_at: '2026-11-21T02:30Z' })],
    ['a run is still going', () => addNight({ state: 'running' })],
    ['the mirror is younger', () => setMirrorCreatedAt(pool, '2026-11-21T03:00Z')],
  ])('is not made up where %s', async (_why, arrange) => {
    await arrange();
    await using world = await openWorld();
    await makeUpMissedRun(SCHEDULE, world.deps, MORNING_MS);
    expect(await world.deps.runs.list({ kind: 'nightly', states: ['queued'], limit: 10 })).toEqual([]);
  });

  it('is tried again after a run that failed, with growing waits, until one did not', async () => {
    await using world = await openWorld();
    const fail = (at: string): Promise<unknown> =>
      addNight({ subject: 'scheduled', verdict: 'failed', finished_at: at });
    const queued = async (at: string): Promise<readonly (string | undefined)[]> => {
      await makeUpMissedRun(SCHEDULE, world.deps, Date.parse(at));
      return (await world.deps.runs.list({ kind: 'nightly', states: ['queued'], limit: 10 })).map(
        ({ scheduleKey }) => scheduleKey,
      );
    };
    await fail('2026-11-21T02:02:00Z');
    expect(await queued('2026-11-21T02:06:00Z')).toEqual([]);
    expect(await queued('2026-11-21T02:07:30Z')).toEqual(['nightly 2026-11-21T02:00:00.000Z again 1']);
    await removeQueuedRuns(pool);
    await fail('2026-11-21T02:08:00Z');
    expect(await queued('2026-11-21T02:14:00Z')).toEqual([]);
    expect(await queued('2026-11-21T02:18:30Z')).toEqual(['nightly 2026-11-21T02:00:00.000Z again 2']);
    await removeQueuedRuns(pool);
    await addNight({ verdict: 'incomplete', finished_at: '2026-11-21T02:30Z' });
    expect(await queued('2026-11-21T12:00:00Z')).toEqual([]);
  });

  it('is made up once for each list where it was an audit, and not where one was done since', async () => {
    const audits = { pattern: '0 4 * * 0', tz: 'UTC' };
    const afterMs = Date.UTC(2026, 10, 23, 8);
    for (const [list, full] of [
      ['parties', true],
      ['checkpoints', false],
    ] as const)
      await addNight({
        kind: 'sync',
        subject: list,
        params: { full },
        verdict: 'complete',
        finished_at: '2026-11-22T05:00Z',
      });
    await using world = await openWorld();
    await makeUpMissedAudits(audits, world.deps, afterMs);
    await makeUpMissedAudits(audits, world.deps, afterMs);
    const made = await world.deps.runs.list({ kind: 'sync', states: ['queued'], limit: 10 });
    expect(made.map(({ scheduleKey, params }) => [scheduleKey, params['full']])).toEqual([
      ['audit checkpoints 2026-11-22T04:00:00.000Z', true],
    ]);
  });

  it('is not called missed before the queue had its time', async () => {
    await using world = await openWorld();
    await makeUpMissedRun(SCHEDULE, world.deps, Date.UTC(2026, 10, 21, 2, 1));
    expect(await world.deps.runs.list({ kind: 'nightly', limit: 10 })).toEqual([]);
  });

  it('is found in its own time zone, also where the clocks change', () => {
    const berlin = { pattern: '30 2 * * *', tz: 'Europe/Berlin' };
    expect(new Date(lastScheduledMs(berlin, Date.UTC(2026, 6, 1, 12))).toISOString()).toBe(
      '2026-07-01T00:30:00.000Z',
    );
    expect(new Date(lastScheduledMs(berlin, Date.UTC(2026, 11, 1, 12))).toISOString()).toBe(
      '2026-12-01T01:30:00.000Z',
    );
  });
});

interface Posted {
  readonly id: string;
  readonly type: string;
  readonly runId: string;
  readonly kind: string;
  readonly verdict: string | null;
}

/** Refuses the first `refusals` posts, and keeps the others. */
async function openReceiver(refusals: number): Promise<{ posted: Posted[]; url: URL } & AsyncDisposable> {
  const posted: Posted[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      refusals -= 1;
      if (refusals < 0) posted.push({ ...JSON.parse(body), id: request.headers['webhook-id'] });
      response.writeHead(refusals < 0 ? 204 : 503).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    posted,
    url: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`),
    [Symbol.asyncDispose]: async () => {
      server.close();
    },
  };
}

describe('the receiver of notices', () => {
  it('is told of the start and the end of a run of each kind, once each, and again after a refusal', async () => {
    // Three tries a notice: the whole first call is refused.
    await using receiver = await openReceiver(3);
    await using world = await openWorld();
    const { runs } = world.deps;
    const deps = {
      ...world.deps,
      notices: { post: posterTo(receiver.url, { version: 'test' }), wanted: ['all'] },
    };
    const kinds = ['nightly', 'sync', 'export', 'load', 'verify'] as const;
    const ids: string[] = [];
    for (const kind of kinds) {
      const { runId } = await runs.create({ kind, subject: kind === 'sync' ? 'parties' : `of ${kind}` });
      ids.push(runId);
      await runs.start(runId);
    }
    await sendNotices(deps);
    expect(receiver.posted).toEqual([]);
    await sendNotices(deps);
    await sendNotices(deps);
    expect(receiver.posted.map(({ id, type, kind }) => [id, type, kind])).toEqual(
      ids.map((id, index) => [`run_${id}_started`, 'run.started', kinds[index]]),
    );
    receiver.posted.length = 0;
    for (const id of ids) await runs.finish(id, 'complete', {});
    await sendNotices(deps);
    await sendNotices(deps);
    expect(receiver.posted.map(({ id, type }) => [id, type])).toEqual(
      ids.map((id) => [`run_${id}`, 'run.finished']),
    );
  });

  it('is told of a failure, of the recovery after it, and of a cancelled run; not of the parts of a run', async () => {
    await using receiver = await openReceiver(0);
    await using world = await openWorld();
    const { runs } = world.deps;
    const deps = {
      ...world.deps,
      notices: { post: posterTo(receiver.url, { version: 'test' }), wanted: ['all'] },
    };
    for (const verdict of ['incomplete', 'complete', 'complete'] as const) {
      const { runId } = await runs.create({ kind: 'nightly', subject: verdict });
      await runs.start(runId);
      const part = await runs.create({ kind: 'sync', subject: 'parties', parentRunId: runId });
      await runs.start(part.runId);
      await runs.finish(runId, verdict, { exports: { failed: 1 } });
      await runs.finish(part.runId, verdict, {});
    }
    const cancelled = await runs.create({ kind: 'load', subject: 'x' });
    await runs.start(cancelled.runId);
    await runs.markCancelled(cancelled.runId);
    await sendNotices(deps);
    expect(receiver.posted.map(({ type, verdict }) => [type, verdict])).toEqual([
      ['run.started', null],
      ['run.failed', 'incomplete'],
      ['run.started', null],
      ['run.recovered', 'complete'],
      ['run.started', null],
      ['run.finished', 'complete'],
      ['run.started', null],
      ['run.cancelled', null],
    ]);
  });

  it('is told only of what is wanted, by kind or by what happened, and not asked about the rest again', async () => {
    await using receiver = await openReceiver(0);
    await using world = await openWorld();
    const { runs } = world.deps;
    const { notifyOn: wanted } = readConfig({ env: {}, cwd: '/' });
    const deps = { ...world.deps, notices: { post: posterTo(receiver.url, { version: 'test' }), wanted } };
    for (const [kind, verdict] of [
      ['export', 'complete'],
      ['export', 'failed'],
      ['nightly', 'complete'],
    ] as const) {
      const { runId } = await runs.create({ kind, subject: verdict });
      await runs.start(runId);
      await runs.finish(runId, verdict, { exported: { rows: 12 } });
    }
    await sendNotices(deps);
    expect(receiver.posted).toMatchObject([
      { type: 'run.failed', kind: 'export', status: 'failed', evidence: { exported: { rows: '12' } } },
      { type: 'run.started', kind: 'nightly', status: 'running' },
      { type: 'run.finished', kind: 'nightly', status: 'succeeded' },
    ]);
    await expect(runs.untold(10)).resolves.toEqual([]);
  });
});

describe('the plan of a nightly run', () => {
  const id = (digit: string): string => digit.repeat(64);

  it('puts active parties first and leaves out idle ones that are not due', async () => {
    await addParties(pool, ['1', '2', '3', '4', '5'].map(id));
    const asked = { last_asked_at: daysAgo(1), last_entry_at: null, idle_nights: 0, quarantined_at: null };
    const idle = { ...asked, last_entry_at: daysAgo(90) };
    await addExports(pool, [
      { ...asked, party_id: id('1'), last_entry_at: daysAgo(1) },
      { ...idle, party_id: id('2'), idle_nights: 5 },
      { ...idle, party_id: id('3'), last_asked_at: daysAgo(20), idle_nights: 4 },
      { ...asked, party_id: id('4'), quarantined_at: daysAgo(0) },
    ]);
    await using world = await openWorld();
    const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
    const request = {
      runId: run.runId,
      partyIds: undefined,
      exportsMax: undefined,
      everyParty: false,
      idleNightsMax: 28,
    };
    expect(await world.deps.plans.preview(request)).toMatchObject({
      parties: 5,
      notDue: 1,
      asked: 4,
      deferred: 0,
    });
    expect(await world.deps.nightly.counts(run.runId, 0)).toMatchObject({ due: 0, queued: 0 });
    expect(await world.deps.plans.plan(request)).toMatchObject({
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

  it('goes by all assets together where the source demands one, and otherwise by none', async () => {
    const parties = ['1', '2', '3'].map(id);
    const never = { asset_id: null, last_asked_at: null, last_entry_at: null, idle_nights: 0 };
    const idle = { last_asked_at: daysAgo(1), last_entry_at: daysAgo(90), idle_nights: 5 };
    await addExports(pool, [
      { ...never, party_id: id('1') },
      { ...idle, party_id: id('1'), asset_id: id('a') },
      { ...idle, party_id: id('1'), asset_id: id('b') },
      { ...idle, party_id: id('2'), asset_id: id('a'), last_entry_at: daysAgo(1), idle_nights: 0 },
    ]);
    await using world = await openWorld();
    const order = async (): Promise<unknown> => {
      const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
      await world.deps.plans.plan({
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

  it.each([1_000, 8_000])(
    'hands out exactly as many as are wanted of %i, without reading the rest',
    async (due) => {
      const ids = Array.from({ length: due }, (_, index) => (index + 1).toString(16).padStart(64, '0'));
      await addParties(pool, ids, 1);
      await using world = await openWorld();
      const plan = async (): Promise<string> => {
        const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
        const all = { partyIds: undefined, exportsMax: undefined, everyParty: true, idleNightsMax: 28 };
        await world.deps.plans.plan({ ...all, runId: run.runId });
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
      expect([taken.length, taken[0]?.partyId]).toEqual([200, '1'.padStart(64, '0')]);
      expect(await world.deps.nightly.counts(second, due)).toMatchObject({ due: due - 200, queued: 200 });
      // Some ten for each row that is changed, whatever waits behind them.
      expect(buffers).toBeLessThan(6_000);
    },
  );

  it('defers the parties beyond its limit to the next nightly run, and counts them', async () => {
    await addParties(pool, ['1', '2', '3', '4', '5'].map(id));
    await addExports(pool, [{ party_id: id('1'), last_asked_at: '2023-01-01Z' }]);
    await using world = await openWorld();
    const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
    const request = {
      runId: run.runId,
      partyIds: undefined,
      exportsMax: 2,
      everyParty: true,
      idleNightsMax: 28,
    };
    const plan = { asked: 2, deferred: 3, deferredNeverAsked: 2 };
    expect(await world.deps.plans.plan(request)).toMatchObject(plan);
    // Delivered again, it finds what was planned.
    await emptyLists(pool);
    expect(await world.deps.plans.plan(request)).toMatchObject(plan);
    expect(await world.deps.nightly.take(run.runId, 10)).toHaveLength(2);
  });

  it('counts the nightly runs without new entries, and starts again with an entry', async () => {
    await addExports(
      pool,
      ['1', '2'].map((digit) => ({ party_id: id(digit), idle_nights: 3 })),
    );
    await using world = await openWorld();
    const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
    await world.deps.plans.plan({
      runId: run.runId,
      partyIds: [id('1'), id('2')],
      exportsMax: undefined,
      everyParty: true,
      idleNightsMax: 28,
    });
    const idle = { partyId: id('1'), state: 'done', outcome: { rows: '0' } } as const;
    await world.deps.nightly.settle(run.runId, [idle]);
    await world.deps.nightly.settle(run.runId, [idle, { ...idle, partyId: id('2'), outcome: { rows: '9' } }]);
    expect((await recordedExports(pool)).map(({ idleNights }) => idleNights)).toEqual([4, 0]);
  });

  it('asks every party while the window is long enough', () => {
    expect(everyPartyFits(1_000_000, undefined)).toBe(true);
    expect(everyPartyFits(2_000, 10)).toBe(true);
    expect(everyPartyFits(2_200, 10)).toBe(false);
  });
});

function countedStore(): AsyncDisposable & { nightly: NightlyStore; buffers: () => Promise<number> } {
  const pool = new Pool({ connectionString: database.url, max: 1 });
  const db = new Kysely<MirrorSchema>({ dialect: new PostgresDialect({ pool }) });
  return {
    nightly: new NightlyStore(db),
    buffers: async () => {
      await pool.query('select pg_stat_force_next_flush()');
      const { rows } = await pool.query<{ buffers: string }>(
        `select sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0)) as buffers
           from pg_statio_all_tables where relname like 'nightly_units%'`,
      );
      return Number(rows[0]?.buffers ?? 0);
    },
    [Symbol.asyncDispose]: () => db.destroy(),
  };
}
