/** The claim: one statement that succeeds only where it is true, and the constraints beneath it. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import type { Chain, ListedRow, PageCommit, WalkSession } from '../../src/walk/ports.ts';
import { WalkStore } from '../../src/walk/store/walk-store.ts';
import { freshDatabase } from '../support/database.ts';
import { ListDouble, parties, party } from './list-double.ts';
import { newRun, openMigrated, WalkWorld } from './walk-world.ts';

const database = await freshDatabase();
const warehouse = await openMigrated(database.url);
const world = new WalkWorld(warehouse);
afterAll(() => warehouse[Symbol.asyncDispose]());
beforeEach(() => world.reset());

async function openOne(): Promise<{ session: WalkSession; runId: string }> {
  const runId = await newRun(world.pool, 'parties');
  const request = { list: 'parties', runId, kind: 'walk', baseUrl: 'x' } as const;
  const session = await new WalkStore(warehouse).open(request, new AbortController().signal);
  if (session === undefined) throw new Error('the walk was taken');
  return { session, runId };
}

function page(session: WalkSession, number: number, chain: Partial<Chain> = {}): PageCommit {
  const rows: ListedRow[] = [party(number).row];
  const pos = BigInt(number) * 1024n;
  return {
    page: {
      role: 'up',
      after: `cursor ${number}`,
      size: 10,
      rows: 1,
      firstKey: rows[0]?.key,
      lastKey: rows[0]?.key,
      height: 7n,
    },
    placed: [{ pos, rows }],
    unplaced: [],
    absorbed: [],
    chain: {
      lo: pos,
      hi: pos,
      hasTail: true,
      head: { walkId: session.walkId, height: 7n, time: undefined },
      bottom: [],
      top: [],
      ...chain,
      chainId: chain.chainId,
    },
  };
}

describe('the claim cannot be made where it is not true', () => {
  test.each([
    ['a chain with tail and head of this walk', {}, '', true],
    ['no tail', { hasTail: false }, '', false],
    ['no head', { head: undefined }, '', false],
    ['a head of an earlier walk', { head: { walkId: 0n, height: 7n, time: undefined } }, '', false],
    ['a guard spoke', {}, `update mirror.walks set violations = '[{"code":"X","meta":{}}]'`, false],
    [
      'a gap was given up in this run',
      {},
      `insert into mirror.known_gaps (epoch, list, run_id, reason)
       select 1, 'parties', run_id, 'lost' from mirror.runs`,
      false,
    ],
    ['the chain began again meanwhile', {}, 'insert into mirror.networks (epoch) values (2)', false],
    ['the run was cancelled', {}, `update mirror.runs set state = 'cancelled', finished_at = now()`, false],
  ] as const)('%s', async (_, chain, meanwhile, expected) => {
    const { session, runId } = await openOne();
    await session.commit(page(session, 1, chain));
    if (meanwhile !== '') await world.pool.query(meanwhile);
    expect(await session.claim({})).toBe(expected);
    const { rows } = await world.pool.query('select verdict from mirror.runs where run_id = $1', [runId]);
    expect(rows[0].verdict).toBe(expected ? 'complete' : null);
  });

  test('under a lease that was lost', async () => {
    const { session } = await openOne();
    await session.commit(page(session, 1));
    await world.pool.query('update mirror.walks set lease_token = gen_random_uuid()');
    await expect(session.claim({})).rejects.toMatchObject({ code: 'FENCED' });
    await expect(session.commit(page(session, 2))).rejects.toMatchObject({ code: 'FENCED' });
    await expect(session.commitIfNew(page(session, 2))).rejects.toMatchObject({ code: 'FENCED' });
    await expect(session.settle('incomplete', {})).rejects.toMatchObject({ code: 'FENCED' });
    await expect(session.renew()).rejects.toMatchObject({ code: 'FENCED' });
    expect(await world.placedParties()).toHaveLength(1);
  });
});

describe('what the tables hold to', () => {
  test('chains of a list never overlap', async () => {
    const { session } = await openOne();
    await session.commit(page(session, 1, { lo: 0n, hi: 5_000n }));
    await expect(session.commit(page(session, 2, { lo: 5_000n, hi: 9_000n }))).rejects.toMatchObject({
      code: 'DATABASE_23P01',
    });
    expect(await world.placedParties()).toHaveLength(1);
  });

  test('a cursor is followed once in a walk, whichever way its page is committed', async () => {
    const { session } = await openOne();
    const chainId = await session.commit(page(session, 1));
    await session.commitIfNew(page(session, 2, { chainId }));
    const again = { ...page(session, 3, { chainId }), page: page(session, 2).page };
    await expect(session.commit(again)).rejects.toMatchObject({ code: 'CURSOR_CYCLE' });
    await expect(session.commitIfNew(again)).rejects.toMatchObject({ code: 'CURSOR_CYCLE' });
    expect(await world.placedParties()).toHaveLength(2);
  });

  test('a page taken for new is not committed where one of its rows is known', async () => {
    const { session } = await openOne();
    const chainId = await session.commit(page(session, 1));
    const known = page(session, 2, { chainId });
    const mixed = { ...known, placed: [...known.placed, { pos: 9_999n, rows: [party(1).row] }] };
    expect(await session.commitIfNew(mixed)).toBeUndefined();
    expect(await world.placedParties()).toEqual([party(1).row.key]);
    const { rows } = await world.pool.query('select count(*)::int as pages from mirror.walk_pages');
    expect(rows).toEqual([{ pages: 1 }]);
  });
});

test('known rows prove nothing: a party that was looked up is not met by a walk', async () => {
  const double = new ListDouble();
  double.lists.parties = parties(60);
  const books = new WalkStore(warehouse);
  for (const index of [5, 6, 30, 31, 32, 58]) await books.keepParty(party(index).row);
  const { verdict, evidence } = await world.walk(double, { list: 'parties' });
  expect({ verdict, newRows: evidence.newRows, rows: evidence.rows }).toEqual({
    verdict: 'complete',
    newRows: '60',
    rows: '60',
  });
  await world.expectParties(double);
});

test("rows whose chain was given up stand in nobody's way and are moved to where they are met", async () => {
  const double = new ListDouble();
  double.lists.parties = parties(60);
  await world.walk(double, { list: 'parties' });
  await world.pool.query('delete from mirror.chains');
  await world.pool.query('update mirror.parties set pos = -pos');
  const { verdict } = await world.walk(double, { list: 'parties' });
  expect(verdict).toBe('complete');
  await world.expectParties(double);
});
