/**
 * kill -9 of the command or of the worker it follows, mid-sync and mid-export: the next
 * one ends exactly. The same for both stores that queues can live in, each in a file of
 * its own, so that they run side by side.
 */
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { expect, test } from 'vitest';
import type { Route } from '../../support/sandbox-faults.ts';
import { startSandbox, type Sandbox } from '../../support/sandbox.ts';
import { openFreshDatabase } from '../../support/database.ts';
import type { Child } from '../../support/process.ts';
import { waitFor } from '../../support/wait-for.ts';
import { expectLedgers, expectLists, strayObjects } from '../expect-truth.ts';
import { openHome, type MirrorHome } from '../mirror-home.ts';
import { listedParties, unfinishedRuns } from '../../support/mirror-state.ts';

/** What the contract allows a successor. */
const TAKEOVER_MAX_MS = 15_000;
/** Of both ends together: more than ten parties, and not all. */
const PAGES_ANSWERED = 6;
const STALL_AFTER_BYTES = 3_000;
/** The queue holds one job of a schedule at a time, beside the one at work. */
const LATER_NIGHTS_MAX = 3;
const OPEN_RUNS = `mirror.runs where state in ('queued', 'running')`;
const EXPORTING = 'mirror.exports where lease_until > clock_timestamp()';

const OURS = `pg_stat_activity where datname = current_database() and application_name = 'ledger-mirror'`;
const LOCK_WAITS = `${OURS} and wait_event_type = 'Lock' and query like '%list_leases%'`;
const IDLE_HOLDERS = `${OURS} and state = 'idle in transaction'`;

interface World extends AsyncDisposable {
  readonly sandbox: Sandbox;
  readonly pool: Pool;
  readonly home: MirrorHome;
}

async function openWorld(redisUrl: string | undefined): Promise<World> {
  await using stack = new AsyncDisposableStack();
  const sandbox = stack.use(
    await startSandbox({
      parties: 80,
      entriesMean: 60,
      // The pages are small for the parties' sake: the other list is not to be hundreds
      // of them.
      checkpointIntervalMs: 6 * 3_600_000,
      rateLimit: 'none',
    }),
  );
  const database = stack.use(await openFreshDatabase());
  const home = stack.use(
    await openHome({
      SOURCE_URL: sandbox.url,
      DATABASE_URL: database.url,
      REDIS_URL: redisUrl,
      SOURCE_PAGE_SIZE: '5',
    }),
  );
  const owned = stack.move();
  return {
    sandbox,
    pool: database.pool,
    home,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function countOf(pool: Pool, from: string): Promise<number> {
  const { rows } = await pool.query<{ found: string }>(
    `select count(*) as found from ${from}`,
  );
  return Number(rows[0]?.found);
}

/**
 * Meets a sync in its middle: a few pages come, and the next ones not before what is
 * returned is called.
 */
async function midWalk({ sandbox, pool }: World): Promise<() => void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let pages = 0;
  sandbox.faults.add(({ route }) => {
    if (route !== 'parties') return undefined;
    pages += 1;
    return pages > PAGES_ANSWERED ? { until: promise } : undefined;
  });
  await waitFor(async () => (await hasParties(pool)) >= 10, {
    what: 'a sync on its way',
  });
  return () => {
    sandbox.faults.clear();
    resolve();
  };
}

/**
 * Stops a command where it holds the rows that a page's commit locks: what it does next
 * never comes.
 */
async function stopMidCommit(child: Child, { pool }: World): Promise<void> {
  const holder = await pool.connect();
  try {
    await holder.query('begin');
    await holder.query('select from mirror.list_leases for update');
    await waitFor(async () => (await countOf(pool, LOCK_WAITS)) > 0, {
      what: 'a commit that waits',
    });
    child.signal('SIGSTOP');
    await holder.query('rollback');
    await waitFor(async () => (await countOf(pool, IDLE_HOLDERS)) > 0, {
      what: 'a transaction left open',
    });
  } finally {
    holder.release(true);
  }
}

async function hasParties(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ there: boolean }>(
    `select to_regclass('mirror.parties') is not null as there`,
  );
  return rows[0]?.there === true ? countOf(pool, 'mirror.parties') : 0;
}

function stallExports({ sandbox }: World): void {
  sandbox.faults.add(({ route }) =>
    route === 'export' ? { stallAfterBytes: STALL_AFTER_BYTES } : undefined,
  );
}

/**
 * By the database's own clock, nothing that a dead process holds is held longer than a
 * successor may wait.
 */
async function expectLeasesEndSoon({ pool }: World): Promise<void> {
  // Fifty seconds sooner than written: its connection ended with it.
  await waitFor(
    async () => {
      const { rowCount } = await pool.query(
        `select from pg_locks where locktype = 'advisory' and objsubid = 2
           and objid::bigint in (select lease_holder from mirror.exports union select lease_holder from mirror.list_leases)`,
      );
      return rowCount === 0 ? true : undefined;
    },
    { what: 'the connection of a dead process to end' },
  );
  const { rows } = await pool.query(
    `select max(lease_until) < clock_timestamp() + $1 * interval '1 millisecond' as soon from (
       select lease_until - interval '50 seconds' as lease_until from mirror.list_leases
       union all select lease_until - interval '50 seconds' from mirror.exports) as held`,
    [TAKEOVER_MAX_MS],
  );
  expect(rows).toEqual([{ soon: true }]);
}

/** Waits until any process asks the source once more. */
async function askedAgain({ sandbox }: World, route: Route): Promise<void> {
  let isAsked = false;
  const remove = sandbox.faults.add((request) => {
    isAsked ||= request.route === route;
    return undefined;
  });
  await waitFor(() => isAsked, { what: `somebody asking for ${route} again` });
  remove();
}

/** The largest ledger: longer than where it stalls. */
function busiest({ sandbox: { truth } }: World): string {
  const parties = [...truth.parties()].map(({ id }) => ({
    id,
    entries: truth.party(id).entries,
  }));
  return parties.toSorted((a, b) => b.entries - a.entries)[0]?.id ?? '';
}

/**
 * What exports have spooled, without the few bytes of a manifest or of the store's own
 * object: these belong to no unit, and the janitor sweeps them by their age.
 */
async function spooledAnswers({ home }: World): Promise<readonly string[]> {
  const spooled = await home.spooled();
  return spooled.filter((path) => !basename(path).startsWith('bytes.'));
}

async function answerSpooled(world: World): Promise<void> {
  await waitFor(async () => (await spooledAnswers(world)).length > 0, {
    what: 'a spool file',
  });
}

async function expectNothingLeft(world: World): Promise<void> {
  const { pool, home } = world;
  expect(await unfinishedRuns(pool)).toEqual([]);
  expect(await spooledAnswers(world)).toEqual([]);
  expect(await strayObjects(pool, home.objectsDir)).toEqual([]);
}

/**
 * Ends the nights that the schedule asked for before it was taken away. An `up` that is
 * told to stop amid such a night leaves it to the next one.
 */
async function endLaterNights({ home, pool }: World): Promise<void> {
  for (let left = LATER_NIGHTS_MAX; left > 0; left -= 1) {
    if ((await countOf(pool, OPEN_RUNS)) === 0) return;
    const next = home.start(['up'], { API_PORT: '0' });
    await waitFor(async () => (await countOf(pool, OPEN_RUNS)) === 0, {
      what: 'the end of a later night',
    });
    expect(await next.end('SIGTERM')).toEqual({ code: 0, signal: null });
  }
}

/** @param redisUrl where the queues live; undefined: in Postgres */
export function killedCases(redisUrl: string | undefined): void {
  test('after a command was killed amid a sync, the next one goes on and ends exactly', async () => {
    await using world = await openWorld(redisUrl);
    const { home, pool, sandbox } = world;
    const first = home.start(['sync', 'all']);
    const letGo = await midWalk(world);
    await first.end('SIGKILL');
    const before = await hasParties(pool);
    expect(before).toBeLessThan(80);
    await expectLeasesEndSoon(world);
    letGo();
    const next = await home.json(['sync', 'all']);
    expect([next.code, next.document.verdict]).toEqual([0, 'complete']);
    await expectLists(pool, sandbox.truth);
    await expectNothingLeft(world);
  });

  test('a command that stood still beyond its lease is fenced, and the sync stays exact', async () => {
    await using world = await openWorld(redisUrl);
    const { home, pool, sandbox } = world;
    const first = home.start(['sync', 'parties', '--json']);
    await waitFor(async () => (await hasParties(pool)) > 0, {
      what: 'a sync on its way',
    });
    await stopMidCommit(first, world);
    const next = await home.json(['sync', 'parties']);
    expect([next.code, next.document.verdict]).toEqual([0, 'complete']);
    first.signal('SIGCONT');
    expect((await first.end()).code).toBe(0);
    expect(await listedParties(pool)).toEqual(
      [...sandbox.truth.parties()].map(({ id }) => id),
    );
    await expectNothingLeft(world);
  });

  test('after a command was killed amid an export, the next one ends exactly and leaves nothing behind', async () => {
    await using world = await openWorld(redisUrl);
    const { home, sandbox } = world;
    const party = busiest(world);
    stallExports(world);
    const first = home.start(['export', '--party', party]);
    await answerSpooled(world);
    await first.end('SIGKILL');
    expect(await spooledAnswers(world)).not.toEqual([]);
    sandbox.faults.clear();
    await expectLeasesEndSoon(world);
    const next = await home.json(['export', '--party', party]);
    expect([next.code, next.document.verdict]).toEqual([0, 'complete']);
    expect(next.document.evidence).toMatchObject({
      rows: String(sandbox.truth.party(party).entries),
    });
    await expectNothingLeft(world);
  });

  test('after a nightly run was killed amid its exports, the next one ends exactly and the first is closed', async () => {
    await using world = await openWorld(redisUrl);
    const { home, pool, sandbox } = world;
    const party = busiest(world);
    sandbox.faults.add(({ route, query }) =>
      route === 'export' && query.get('partyId') === party
        ? { stallAfterBytes: STALL_AFTER_BYTES }
        : undefined,
    );
    const first = home.start(['nightly']);
    await waitFor(() => sandbox.requests.of('export', 200) > 20, {
      what: 'exports',
    });
    await answerSpooled(world);
    await first.end('SIGKILL');
    sandbox.faults.clear();
    const next = await home.json(['nightly']);
    expect([next.code, next.document.verdict]).toEqual([0, 'complete']);
    const nights = await pool.query(
      `select verdict, evidence->'error'->>'code' as code from mirror.runs where kind = 'nightly' order by queued_at`,
    );
    expect(nights.rows).toEqual([
      { verdict: 'failed', code: 'ABANDONED' },
      { verdict: 'complete', code: null },
    ]);
    await expectLists(pool, sandbox.truth);
    await expectLedgers(pool, sandbox.truth, home.objectsDir);
    await expectNothingLeft(world);
  });

  test('a command takes over when the worker of its run is killed amid a sync', async () => {
    await using world = await openWorld(redisUrl);
    const { home, pool, sandbox } = world;
    const worker = home.start(['worker']);
    await waitFor(() => worker.stderr.includes('"Working"'), {
      what: 'the worker',
    });
    const command = home.start(['sync', 'parties', '--json']);
    const letGo = await midWalk(world);
    await worker.end('SIGKILL');
    letGo();
    await expectLeasesEndSoon(world);
    await askedAgain(world, 'parties');
    expect((await command.end()).code).toBe(0);
    // Asked by name, so that an equal run would be a second one.
    expect(await countOf(pool, `mirror.runs where kind = 'sync'`)).toBe(1);
    const checkpoints = await home.run(['sync', 'checkpoints']);
    expect(checkpoints.code).toBe(0);
    await expectLists(pool, sandbox.truth);
    await expectNothingLeft(world);
  });

  test('a command takes over when the worker of its run is killed amid an export', async () => {
    await using world = await openWorld(redisUrl);
    const { home, sandbox } = world;
    const party = busiest(world);
    stallExports(world);
    const worker = home.start(['worker']);
    await waitFor(() => worker.stderr.includes('"Working"'), {
      what: 'the worker',
    });
    const command = home.start([
      'export',
      '--party',
      party,
      '--out',
      'ledger.csv',
    ]);
    await answerSpooled(world);
    sandbox.faults.clear();
    await worker.end('SIGKILL');
    await expectLeasesEndSoon(world);
    await askedAgain(world, 'export');
    expect((await command.end()).code).toBe(0);
    await expectNothingLeft(world);
  });

  test('after an `up` was killed amid its scheduled nightly run, the next one ends that same run', async () => {
    await using world = await openWorld(redisUrl);
    const { home, pool, sandbox } = world;
    stallExports(world);
    const first = home.start(['up'], {
      SCHEDULE: '*/2 * * * * *',
      NIGHTLY_WINDOW: '1h',
      API_PORT: '0',
    });
    await waitFor(
      async () =>
        (await hasParties(pool)) > 0 && (await countOf(pool, EXPORTING)) > 0,
      {
        what: 'an export on its way',
      },
    );
    // Exports have stalled for a while, so that the queue delivers their jobs once more.
    await sleep(2_500);
    await first.end('SIGKILL');
    sandbox.faults.clear();
    await expectLeasesEndSoon(world);
    const next = home.start(['up'], { API_PORT: '0' });
    await askedAgain(world, 'export');
    await waitFor(async () => (await countOf(pool, OPEN_RUNS)) === 0, {
      what: 'its end',
    });
    // The schedule's next time, two seconds on, may have come before the kill as well:
    // that one is a night of its own.
    const nights = await pool.query(
      `select slot is not null as scheduled, verdict, attempts > 1 as resumed from mirror.runs
        where kind = 'nightly' order by queued_at limit 1`,
    );
    expect(nights.rows).toEqual([
      { scheduled: true, verdict: 'complete', resumed: true },
    ]);
    expect(await next.end('SIGTERM')).toEqual({ code: 0, signal: null });
    await endLaterNights(world);
    await expectLists(pool, sandbox.truth);
    await expectLedgers(pool, sandbox.truth, home.objectsDir);
    await expectNothingLeft(world);
  });
}
