/** Crashes at every labelled step, rivals, databases that break off: each ends in exactly the source's rows. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { FencedError } from '../../src/core/errors.ts';
import type { CheckpointLabel } from '../../src/walk/context.ts';
import { openSession } from '../../src/walk/lease.ts';
import type { ListName, PageQuestion, WalkHints } from '../../src/walk/ports.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { WalkStore } from '../../src/walk/store/walk-store.ts';
import { freshDatabase } from '../support/database.ts';
import { waitFor } from '../support/wait-for.ts';
import { CuttingProxy } from './cutting-proxy.ts';
import { checkpoints, ListDouble, parties } from './list-double.ts';
import { newRun, openMigrated, WalkWorld } from './walk-world.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new WalkWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

class Killed extends Error {}

const LABELS: readonly CheckpointLabel[] = [
  'asking',
  'received',
  'committing',
  'committed',
  'hinted',
  'claiming',
  'claimed',
];

function full(): ListDouble {
  const double = new ListDouble();
  double.lists.parties = parties(90);
  double.lists.checkpoints = checkpoints(60);
  return double;
}

/** Dies at the `nth` passing of a label and lets go of nothing, as a killed process does. */
async function walkUntilKilled(
  double: ListDouble,
  list: ListName,
  runId: string,
  label: CheckpointLabel,
  nth: number,
): Promise<boolean> {
  let passed = 0;
  const checkpoint = (reached: CheckpointLabel): void => {
    if (reached === label && (passed += 1) >= nth) throw new Killed();
  };
  try {
    await world.walk(double, { list, runId }, { deps: { checkpoint } });
    return false;
  } catch (error) {
    if (!(error instanceof Killed)) throw error;
    return true;
  }
}

function repeated(questions: readonly PageQuestion[]): number {
  return questions.length - new Set(questions.map((question) => JSON.stringify(question))).size;
}

describe.each(['parties', 'checkpoints'] as const)('killed while walking %s', (list) => {
  test.each(LABELS)('at every "%s"', async (label) => {
    for (let nth = 1; nth < 40; nth += nth < 4 ? 1 : 5) {
      await world.reset();
      const double = full();
      const runId = await newRun(world.pool, list);
      const wasKilled = await walkUntilKilled(double, list, runId, label, nth);
      if (!wasKilled) break;
      const { verdict, evidence } = await world.resume(double, list, runId);
      expect(evidence).toMatchObject({ missing: [], violations: [] });
      expect(verdict).toBe('complete');
      // The page in flight of each direction, the one being committed, and the head.
      expect(repeated(double.questions)).toBeLessThanOrEqual(4);
      await world.expectList(double, list);
    }
  });

  test('again and again', async () => {
    const double = full();
    const runId = await newRun(world.pool, list);
    let kills = 0;
    while (await walkUntilKilled(double, list, runId, 'committed', 2)) kills += 1;
    expect(kills).toBeGreaterThan(5);
    await world.expectList(double, list);
  });
});

describe('rivals', () => {
  test('a worker that was overtaken stops quietly and has written nothing since', async () => {
    const double = full();
    const runId = await newRun(world.pool, 'parties');
    let commits = 0;
    let letGo = (): void => undefined;
    const gate = new Promise<void>((resolve) => (letGo = resolve));
    let isStuck = false;
    const first = world.walk(
      double,
      { list: 'parties', runId },
      {
        deps: {
          checkpoint: async (label) => {
            if (label !== 'committing' || (commits += 1) !== 4) return;
            isStuck = true;
            await gate;
          },
        },
      },
    );
    const overtaken = first.catch((error: unknown) => error);
    await waitFor(() => isStuck, { what: 'the first worker to be stuck' });
    await world.pool.query(`update mirror.walks set lease_until = now() - interval '1 second'`);
    const { verdict, evidence } = await world.walk(double, { list: 'parties', runId });
    expect({ verdict, resumed: evidence.resumed }).toEqual({ verdict: 'complete', resumed: true });
    const before = await world.pool.query('select * from mirror.walk_pages order by committed_at');
    letGo();
    expect(await overtaken).toBeInstanceOf(FencedError);
    expect((await world.pool.query('select * from mirror.walk_pages order by committed_at')).rows).toEqual(
      before.rows,
    );
    await world.expectParties(double);
  });

  test('of two that begin at once, one has the walk and the other waits for its lease', async () => {
    const runId = await newRun(world.pool, 'parties');
    const books = new WalkStore(warehouse);
    const request = { list: 'parties', runId, kind: 'walk', baseUrl: 'x' } as const;
    const { signal } = new AbortController();
    const sessions = await Promise.all(Array.from({ length: 4 }, () => books.open(request, signal)));
    expect(sessions.filter((session) => session !== undefined)).toHaveLength(1);
    const waiting = openSession(books, request, signal);
    await sessions.find((session) => session !== undefined)?.release();
    expect((await waiting).resumed).toBe(true);
    await world.pool.query(`update mirror.walks set lease_until = now() + interval '1 hour'`);
    await expect(openSession(books, request, signal, { waitMs: 50, againMs: 10 })).rejects.toMatchObject({
      code: 'WALK_BUSY',
    });
  });

  test('the two lists do not wait for each other', async () => {
    const double = full();
    const outcomes = await Promise.all([
      world.walk(double, { list: 'parties' }),
      world.walk(double, { list: 'checkpoints' }),
    ]);
    expect(outcomes.map(({ verdict }) => verdict)).toEqual(['complete', 'complete']);
  });
});

/** Which of its passings is lost. */
const LOST = new Set([1, 3, 4, 9]);

describe('a database that breaks off', () => {
  test.each([
    ['the answer to a page', 'with lease as'],
    ['the answer to COMMIT', 'commit\0'],
    ['the answer to the claim', `verdict = 'complete'`],
    ['the answer to a look-up', 'as asked (id)'],
    ['a statement inside a transaction', 'insert into mirror.parties as party'],
  ])('%s is lost', async (_, statement) => {
    await using proxy = await CuttingProxy.before(database.url);
    await using through = openWarehouse({ url: proxy.url, onIdleError: () => undefined });
    let seen = 0;
    proxy.loses = (packet) => packet.includes(statement) && LOST.has((seen += 1));
    const double = full();
    const { verdict, evidence } = await new WalkWorld(through).walk(double, { list: 'parties' });
    expect(evidence).toMatchObject({ missing: [], violations: [] });
    expect(verdict).toBe('complete');
    expect(proxy.losses).toBeGreaterThan(0);
    expect(repeated(double.questions)).toBe(0);
    await world.expectParties(double);
  });

  test('backends are killed again and again', async () => {
    await using proxy = await CuttingProxy.before(database.url);
    await using through = openWarehouse({ url: proxy.url, onIdleError: () => undefined });
    const double = full();
    let commits = 0;
    const { verdict } = await new WalkWorld(through).walk(
      double,
      { list: 'checkpoints' },
      {
        deps: {
          checkpoint: async (label) => {
            if (label !== 'committing' || (commits += 1) % 3 !== 0) return;
            await world.pool.query(
              `select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and pid <> pg_backend_pid() and application_name = 'ledger-mirror'`,
            );
          },
        },
      },
    );
    expect(verdict).toBe('complete');
    await world.expectCheckpoints(double);
  });
});

describe('hints', () => {
  const stores: readonly [string, WalkHints][] = [
    ['away', { get: () => Promise.reject(new Error('away')), set: () => Promise.reject(new Error('away')) }],
    ['flushed', { get: async () => undefined, set: async () => undefined }],
    ['older', { get: async () => ({ walkId: '0', lo: '5', hi: '7' }), set: async () => undefined }],
    ['not ours', { get: async () => 'garbage', set: async () => undefined }],
  ];
  test.each(stores)('%s: rows and verdict are the same', async (_, hints) => {
    const double = full();
    const runId = await newRun(world.pool, 'parties');
    await walkUntilKilled(double, 'parties', runId, 'committed', 5);
    const { verdict } = await world.walk(double, { list: 'parties', runId }, { deps: { hints } });
    expect(verdict).toBe('complete');
    await world.expectParties(double);
  });

  test('a resumed walk reads where it stood', async () => {
    const stored = new Map<string, unknown>();
    const hints: WalkHints = {
      get: async (key) => stored.get(key),
      set: async (key, value) => void stored.set(key, value),
    };
    const double = full();
    const stop = new AbortController();
    let commits = 0;
    const checkpoint = (label: CheckpointLabel): void => {
      if (label === 'hinted' && (commits += 1) === 4) stop.abort(new Killed());
    };
    await expect(
      world.walk(double, { list: 'parties' }, { deps: { hints, checkpoint }, signal: stop.signal }),
    ).rejects.toBeInstanceOf(Killed);
    expect(stored.get('walk:parties')).toMatchObject({ walkId: expect.any(String), lo: expect.any(String) });
    const { evidence } = await world.walk(double, { list: 'parties' }, { deps: { hints } });
    expect(evidence).toMatchObject({ resumed: true, hint: 'agrees' });
  });
});
