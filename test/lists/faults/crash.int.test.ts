/**
 * Crashes at every failpoint, rivals, lost answers, resume points: each ends in exactly
 * the source's rows.
 */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { FencedError } from '../../../src/errors/errors.ts';
import type { Failpoint, SyncDeps } from '../../../src/lists/sync-context.ts';
import { waitForSession } from '../../../src/lists/sync-list.ts';
import type {
  ListName,
  PageRequest,
  ResumePointStore,
} from '../../../src/lists/ports.ts';
import { ListStore } from '../../../src/lists/store/list-store.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { freshDatabase, openFreshDatabase } from '../../support/database.ts';
import { waitFor } from '../../support/wait-for.ts';
import { CuttingProxy } from './cutting-proxy.ts';
import { checkpoints, ListDouble, parties } from '../list-double.ts';
import {
  newRun,
  openMigrated,
  rememberingStore,
  SyncWorld,
} from '../sync-world.ts';
import { endListLeases } from '../../support/mirror-arrange.ts';
import {
  recordedGenerations,
  storedResumePoint,
} from '../../support/mirror-state.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new SyncWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

class Killed extends Error {}

const STEPS: readonly Failpoint[] = [
  'asking',
  'received',
  'committing',
  'committed',
  'remembered',
  'claiming',
  'claimed',
];

function full(): ListDouble {
  const double = new ListDouble();
  double.lists.parties = parties(90);
  double.lists.checkpoints = checkpoints(60);
  return double;
}

async function expectHeld(double: ListDouble, list: ListName): Promise<void> {
  const sorted = (keys: readonly string[]): string[] =>
    keys.toSorted((a, b) => (a < b ? -1 : Number(a > b)));
  expect(sorted(await world.held(list))).toEqual(
    sorted(double.lists[list].map(({ row }) => row.key)),
  );
}

/**
 * Dies at the `nth` passing of a failpoint and lets go of nothing, as a killed process
 * does.
 */
async function syncUntilKilled(
  double: ListDouble,
  request: { list: ListName; runId: string; isAudit?: boolean },
  [step, nth]: readonly [Failpoint, number],
  deps: Partial<SyncDeps> = {},
): Promise<boolean> {
  let passed = 0;
  const failpoint = (reached: Failpoint): void => {
    if (reached !== step) return;
    passed += 1;
    if (passed >= nth) throw new Killed();
  };
  try {
    await world.sync(double, request, { deps: { ...deps, failpoint } });
    return false;
  } catch (error) {
    if (!(error instanceof Killed)) throw error;
    return true;
  }
}

/** How often each page was asked for. */
function timesAsked(questions: readonly PageRequest[]): Map<string, number> {
  const times = new Map<string, number>();
  for (const question of questions) {
    const name = JSON.stringify(question);
    times.set(name, (times.get(name) ?? 0) + 1);
  }
  return times;
}

describe.each(['parties', 'checkpoints'] as const)(
  'a sync of %s that is killed',
  (list) => {
    test.each(STEPS)(
      'at any "%s" is finished by the next, with a page in flight and one asked again',
      async (step) => {
        const calm = full();
        await world.sync(calm, { list });
        // Pages with equal checkpoints are asked for twice anyway.
        const undisturbed = timesAsked(calm.questions);
        const usual = list === 'parties' ? 1 : 2;
        for (let nth = 1; nth < 40; nth += nth < 4 ? 1 : 5) {
          await world.reset();
          const double = full();
          const runId = await newRun(world.pool, list);
          const resumePoints = rememberingStore();
          if (
            !(await syncUntilKilled(double, { list, runId }, [step, nth], {
              resumePoints,
            }))
          )
            break;
          const { verdict, evidence } = await world.resume(
            double,
            list,
            runId,
            {
              resumePoints,
            },
          );
          expect({ verdict, evidence }).toMatchObject({
            verdict: 'complete',
            evidence: { missing: [], doubts: [] },
          });
          const again = [...timesAsked(double.questions)].map(
            ([name, times]) => times - (undisturbed.get(name) ?? usual),
          );
          // The page in flight and one; where equal checkpoints have pages asked for
          // twice, each of the two.
          expect(
            again.reduce((sum, times) => sum + Math.max(0, times), 0),
          ).toBeLessThanOrEqual(2 * usual);
          await expectHeld(double, list);
        }
      },
    );

    test('again and again gets to its end', async () => {
      const double = full();
      const runId = await newRun(world.pool, list);
      let kills = 0;
      while (await syncUntilKilled(double, { list, runId }, ['committed', 2]))
        kills += 1;
      expect(kills).toBeGreaterThan(3);
      await expectHeld(double, list);
    });

    test('in an audit goes on with it, and no reader sees the audit before it is complete', async () => {
      const double = full();
      await world.sync(double, { list });
      const before = await world.held(list);
      double.lists[list].splice(20, 1);
      for (const nth of [2, 3, 4]) {
        const runId = await newRun(world.pool, list);
        await syncUntilKilled(double, { list, runId, isAudit: true }, [
          'committed',
          nth,
        ]);
        expect(await world.held(list)).toEqual(before);
      }
      const { verdict, evidence } = await world.sync(double, { list });
      expect({ verdict, evidence }).toMatchObject({
        verdict: 'complete',
        evidence: { kind: 'audit', audit: { gone: '1' } },
      });
      await expectHeld(double, list);
    });
  },
);

describe('processes that sync one list', () => {
  test('stop quietly after another took over, and write nothing afterwards', async () => {
    const double = full();
    const runId = await newRun(world.pool, 'parties');
    let commits = 0;
    let letGo = (): void => undefined;
    const gate = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    let isStuck = false;
    const first = world.sync(
      double,
      { list: 'parties', runId },
      {
        deps: {
          failpoint: async (step) => {
            if (step !== 'committing') return;
            commits += 1;
            if (commits !== 4) return;
            isStuck = true;
            await gate;
          },
        },
      },
    );
    const overtaken = first.catch((error: unknown) => error);
    await waitFor(() => isStuck, { what: 'the first worker to be stuck' });
    await endListLeases(world.pool);
    expect((await world.sync(double, { list: 'parties', runId })).verdict).toBe(
      'complete',
    );
    const before = await recordedGenerations(world.pool);
    letGo();
    expect(await overtaken).toBeInstanceOf(FencedError);
    expect(await recordedGenerations(world.pool)).toEqual(before);
    await expectHeld(double, 'parties');
  });

  test('take turns: one has the list and the others wait for its lease', async () => {
    const runId = await newRun(world.pool, 'parties');
    const store = new ListStore(warehouse.db);
    const { signal } = new AbortController();
    const sessions = await Promise.all(
      Array.from({ length: 4 }, () => store.open('parties', runId, signal)),
    );
    expect(sessions.filter((session) => session !== undefined)).toHaveLength(1);
    const waiting = waitForSession(store, 'parties', runId, signal);
    await sessions.find((session) => session !== undefined)?.release();
    expect((await waiting).list).toBe('parties');
    await expect(
      waitForSession(store, 'parties', runId, signal, 50),
    ).rejects.toMatchObject({
      code: 'LIST_BUSY',
    });
  });

  test('do not wait for those of the other list', async () => {
    const double = full();
    const outcomes = await Promise.all([
      world.sync(double, { list: 'parties' }),
      world.sync(double, { list: 'checkpoints' }),
    ]);
    expect(outcomes.map(({ verdict }) => verdict)).toEqual([
      'complete',
      'complete',
    ]);
  });
});

/** Which of its passings is lost. */
const LOST = new Set([1, 3, 4, 9]);

describe('a sync whose database fails', () => {
  test.each([
    ['the answer to a page', 'pages = pages + 1'],
    ['the answer to COMMIT', 'commit\0'],
    ['the answer to the claim', `verdict = 'complete'`],
    ['the answer to the lease', 'set token ='],
  ])('%s is lost: what was done is not done twice', async (_, text) => {
    await using proxy = await CuttingProxy.before(database.url);
    await using cut = openWarehouse({
      url: proxy.url,
      onIdleError: () => undefined,
    });
    let passed = 0;
    proxy.loses = (packet) => {
      if (!packet.toLowerCase().includes(text.toLowerCase())) return false;
      passed += 1;
      return LOST.has(passed);
    };
    const double = full();
    const { verdict, evidence } = await new SyncWorld(cut).sync(double, {
      list: 'parties',
    });
    expect({ verdict, rows: evidence['rows'] }).toEqual({
      verdict: 'complete',
      rows: '90',
    });
    expect(proxy.losses).toBeGreaterThan(0);
    await expectHeld(double, 'parties');
  });

  test('waits for a standby that takes no writes for a while', async () => {
    await using own = await openFreshDatabase();
    await using standby = await openMigrated(own.url);
    const name = new URL(own.url).pathname.slice(1);
    /** From another database: a transaction of this one would be read-only itself. */
    const takeWrites = async (isWritable: boolean): Promise<void> => {
      await world.pool.query(
        `alter database ${name} set default_transaction_read_only = ${isWritable ? 'off' : 'on'}`,
      );
      await world.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`,
        [name],
      );
    };
    const double = full();
    const standbyWorld = new SyncWorld(standby);
    let commits = 0;
    let promoted: Promise<void> | undefined;
    const failpoint = async (step: Failpoint): Promise<void> => {
      if (step !== 'committing') return;
      commits += 1;
      if (commits !== 3) return;
      await takeWrites(false);
      promoted = new Promise((resolve) => {
        setTimeout(() => resolve(takeWrites(true)), 1_000);
      });
    };
    const { verdict } = await standbyWorld.sync(
      double,
      { list: 'parties' },
      { deps: { failpoint } },
    );
    await promoted;
    expect(verdict).toBe('complete');
    expect(await standbyWorld.held('parties')).toEqual(
      double.lists.parties.map(({ row }) => row.key),
    );
  });
});

describe('the resume point', () => {
  const KEY = 'list-sync:parties';

  /** Kills a sync after some pages. @returns what Redis and Postgres remember of it */
  async function killAfterPages(
    double: ListDouble,
    entries: Map<string, unknown>,
  ): Promise<string> {
    const runId = await newRun(world.pool, 'parties');
    await syncUntilKilled(
      double,
      { list: 'parties', runId },
      ['remembered', 5],
      {
        resumePoints: rememberingStore(entries),
      },
    );
    return runId;
  }

  async function storedPoint(): Promise<{
    groups: { cursor: string; keys: string[] }[];
    sequence: string;
  }> {
    return (await storedResumePoint(world.pool)) as Awaited<
      ReturnType<typeof storedPoint>
    >;
  }

  test('in Redis is used after a kill: its cursor is the first that is sent', async () => {
    const double = full();
    const entries = new Map<string, unknown>();
    const runId = await killAfterPages(double, entries);
    const point = structuredClone(entries.get(KEY)) as Awaited<
      ReturnType<typeof storedPoint>
    >;
    // Another text for the same row: only Redis has it.
    const group = point.groups.at(-2);
    if (group === undefined) throw new Error('no group is remembered');
    const renamed = {
      ...point,
      groups: point.groups.with(point.groups.length - 2, {
        ...group,
        cursor: `from-redis-${group.cursor}`,
      }),
    };
    entries.set(KEY, renamed);
    const before = double.questions.length;
    const compute = double.compute.bind(double);
    double.compute = (question) =>
      compute({
        ...question,
        after: question.after?.replace('from-redis-', ''),
      });
    const { verdict, evidence } = await world.resume(double, 'parties', runId, {
      resumePoints: rememberingStore(entries),
    });
    expect(double.questions[before]?.after).toBe(`from-redis-${group.cursor}`);
    expect({ verdict, from: evidence['resumedFrom'] }).toEqual({
      verdict: 'complete',
      from: 'resume state',
    });
    await expectHeld(double, 'parties');
  });

  test.each([
    ['flushed', () => undefined],
    ['nonsense', () => 'garbage'],
    [
      'of another generation',
      (point: object) => ({ ...point, generationId: '999999' }),
    ],
    [
      'of the same commit with other rows',
      (point: object) => ({ ...point, groups: [{ cursor: 'x', keys: ['y'] }] }),
    ],
  ])('in Redis that is %s is not used: Postgres has it', async (_, change) => {
    const double = full();
    const entries = new Map<string, unknown>();
    const runId = await killAfterPages(double, entries);
    const point = await storedPoint();
    entries.set(KEY, change(point));
    const before = double.questions.length;
    const { verdict, evidence } = await world.resume(double, 'parties', runId, {
      resumePoints: rememberingStore(entries),
    });
    expect(double.questions[before]?.after).toBe(point.groups.at(-2)?.cursor);
    expect({ verdict, from: evidence['resumedFrom'] }).toEqual({
      verdict: 'complete',
      from: 'list row',
    });
    await expectHeld(double, 'parties');
  });

  test('of an older Redis dump costs a few pages, because Postgres refuses pages that build on it', async () => {
    const double = full();
    const entries = new Map<string, unknown>();
    let older: unknown;
    const remembering = rememberingStore(entries);
    const resumePoints: ResumePointStore = {
      ...remembering,
      set: async (key, value, ttlMs) => {
        await remembering.set(key, value, ttlMs);
        if ((value as { sequence: string }).sequence === '2')
          older = structuredClone(value);
      },
    };
    const runId = await newRun(world.pool, 'parties');
    await syncUntilKilled(
      double,
      { list: 'parties', runId },
      ['remembered', 5],
      {
        resumePoints,
      },
    );
    entries.set(KEY, older);
    const before = double.questions.length;
    const { verdict, evidence } = await world.resume(double, 'parties', runId, {
      resumePoints: remembering,
    });
    expect({
      verdict,
      from: evidence['resumedFrom'],
      rows: evidence['rows'],
    }).toEqual({
      verdict: 'complete',
      from: 'resume state',
      rows: '90',
    });
    // Five of the 11 pages and the newest were read; at most one page is in vain. Then the
    // whole list is read once more, to confirm it.
    expect(double.questions.length - before).toBeLessThanOrEqual(
      12 - 5 + 1 + 12,
    );
    await expectHeld(double, 'parties');
  });

  test('is kept in Postgres where there is no Redis', async () => {
    const double = full();
    const away = (): Promise<never> => Promise.reject(new Error('away'));
    const runId = await newRun(world.pool, 'parties');
    const deps = { resumePoints: { get: away, set: away } };
    await syncUntilKilled(
      double,
      { list: 'parties', runId },
      ['committed', 5],
      deps,
    );
    expect(await world.resume(double, 'parties', runId, deps)).toMatchObject({
      verdict: 'complete',
      evidence: { resumedFrom: 'list row' },
    });
    await expectHeld(double, 'parties');
  });
});
