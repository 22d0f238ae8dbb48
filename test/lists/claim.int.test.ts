/**
 * The claim: one statement that succeeds only where it is true, and the constraints
 * beneath it.
 */
import { describe, expect, test } from 'vitest';
import type { ListedRow } from '../../src/lists/ports.ts';
import type { Claim } from '../../src/lists/store/claim.ts';
import {
  ListStore,
  type ListSession,
} from '../../src/lists/store/list-store.ts';
import type { Generation } from '../../src/lists/store/generations.ts';
import { checkpoints, ListDouble, parties, party } from './list-double.ts';
import { freshSyncWorld, newRun } from './sync-world.ts';
import { verdictOf } from '../support/mirror-state.ts';

const world = await freshSyncWorld();

interface Opened {
  readonly session: ListSession;
  readonly generation: Generation;
  readonly runId: string;
}

async function openOne(): Promise<Opened> {
  const runId = await newRun(world.pool, 'parties');
  const session = await new ListStore(world.warehouse.db).open(
    'parties',
    runId,
    new AbortController().signal,
  );
  if (session === undefined) throw new Error('the list was taken');
  return { session, runId, generation: await session.begin('current', 1) };
}

async function append(
  { session, generation }: Opened,
  sequence: number,
  rows: readonly ListedRow[],
): Promise<boolean> {
  const held = await session.append(generation, {
    rows,
    resumePoint: {
      generationId: `${generation.generationId}`,
      sequence: `${sequence}`,
      groups: [],
    },
    blockHeight: 7n,
    blockTime: undefined,
  });
  return held !== undefined;
}

function claimOf(
  { generation }: Opened,
  newestKeys: readonly string[],
  sequence = 1n,
): Claim {
  return {
    generation,
    sequence,
    newestKeys,
    blockHeight: undefined,
    blockTime: undefined,
    accepted: {},
    evidence: () => ({}),
  };
}

const NEWEST = [party(1).row.key];

describe('the claim that a list is complete', () => {
  test.each([
    ['it was read to the newest page', '', NEWEST, 'unconfirmed'],
    [
      'a row of the newest page is not held',
      '',
      [...NEWEST, party(2).row.key],
      'refused',
    ],
    [
      'a doubt is open',
      `insert into mirror.doubts (subject, epoch, code) values ('parties', 1, 'SHORT_PAGE')`,
      NEWEST,
      'refused',
    ],
    [
      'a gap was not confirmed by an audit',
      `insert into mirror.list_gaps (list, epoch, below_key, above_key) values ('parties', 1, 'a', 'b')`,
      NEWEST,
      'refused',
    ],
    [
      'rows before and rows new are not the rows now',
      'delete from mirror.parties where pos = 1',
      [],
      'refused',
    ],
    [
      'the chain began again meanwhile',
      'insert into mirror.networks (epoch) values (2)',
      NEWEST,
      'refused',
    ],
    [
      'the run was cancelled',
      `update mirror.runs set state = 'cancelled', finished_at = now()`,
      NEWEST,
      'refused',
    ],
    [
      'the generation has gone on',
      'update mirror.generations set sequence = 9',
      NEWEST,
      'stale',
    ],
  ] as const)(
    'is answered by the tables: %s',
    async (_, meanwhile, newest, expected) => {
      const one = await openOne();
      expect(await append(one, 1, [party(0).row, party(1).row])).toBe(true);
      if (meanwhile !== '') await world.pool.query(meanwhile);
      expect((await one.session.claim(claimOf(one, newest))).kind).toBe(
        expected,
      );
      expect(await verdictOf(world.pool, one.runId)).toBeNull();
    },
  );

  test('is refused under a lease that was lost', async () => {
    const one = await openOne();
    await append(one, 1, [party(1).row]);
    await world.pool.query(
      'update mirror.list_leases set token = gen_random_uuid()',
    );
    await expect(one.session.claim(claimOf(one, []))).rejects.toMatchObject({
      code: 'FENCED',
    });
    await expect(append(one, 2, [party(2).row])).rejects.toMatchObject({
      code: 'FENCED',
    });
    await expect(one.session.settle('incomplete', {})).rejects.toMatchObject({
      code: 'FENCED',
    });
    await expect(one.session.renew()).rejects.toMatchObject({ code: 'FENCED' });
    expect(await world.held('parties')).toHaveLength(1);
  });
});

describe('the tables of a list', () => {
  test('refuse a page that builds on an older resume point, and store nothing of it', async () => {
    const one = await openOne();
    await append(one, 1, [party(1).row]);
    expect(await append(one, 1, [party(2).row])).toBe(false);
    expect(await append(one, 3, [party(2).row])).toBe(false);
    expect(await world.held('parties')).toEqual(NEWEST);
  });

  test('hold a party once in a generation', async () => {
    const one = await openOne();
    await append(one, 1, [party(1).row]);
    await expect(
      append(one, 2, [party(2).row, party(1).row]),
    ).rejects.toMatchObject({
      code: 'ROW_TWICE',
    });
    expect(await world.held('parties')).toEqual(NEWEST);
  });

  test('hold one current generation and one audit of a list', async () => {
    const one = await openOne();
    const { session } = one;
    expect((await session.begin('current', 1)).generationId).toBe(
      one.generation.generationId,
    );
    await append(one, 1, [party(1).row]);
    await expect(session.begin('current', 1)).rejects.toMatchObject({
      cause: expect.any(TypeError),
    });
    await session.begin('audit', 1);
    await session.begin('audit', 1);
    const { rows } = await world.pool.query(
      'select kind from mirror.generations order by kind',
    );
    expect(rows).toEqual([{ kind: 'audit' }, { kind: 'current' }]);
  });

  test('hold an open doubt of a kind once, which only an audit closes', async () => {
    const double = new ListDouble();
    double.lists.parties = parties(60);
    await world.sync(double, { list: 'parties' });
    double.answer = ({ question, page }) =>
      question.newestFirst ? { ...page, endCursor: 'another' } : page;
    for (const _ of [1, 2])
      expect((await world.sync(double, { list: 'parties' })).verdict).toBe(
        'suspicious',
      );
    expect(await world.openDoubts('parties')).toEqual(['ENVELOPE_CONTRADICTS']);
    double.answer = ({ page }) => page;
    expect(await world.sync(double, { list: 'parties' })).toMatchObject({
      verdict: 'complete',
      evidence: {
        kind: 'audit',
        because: 'open doubt: ENVELOPE_CONTRADICTS',
        doubts: [],
      },
    });
    expect(await world.openDoubts('parties')).toEqual([]);
    expect(
      (await world.sync(double, { list: 'parties' })).evidence,
    ).toMatchObject({
      kind: 'increment',
      requests: 2,
    });
  });
});

test('a party that was looked up proves nothing and gets its position when it is listed', async () => {
  const double = new ListDouble();
  double.lists.parties = parties(60);
  for (const index of [5, 6, 30, 31, 58])
    await new ListStore(world.warehouse.db).keepParty(party(index).row);
  const { verdict, evidence } = await world.sync(double, { list: 'parties' });
  expect({ verdict, rows: evidence['rows'] }).toEqual({
    verdict: 'complete',
    rows: '60',
  });
  expect(await world.held('parties')).toEqual(
    double.lists.parties.map(({ row }) => row.key),
  );
});

test.each([
  // Heights 10, 20, …: the gap reaches from height 20 to where the source's oldest row
  // was.
  [
    'is confirmed where the source still serves no row below',
    6,
    { above: '60', isConfirmed: true },
  ],
  [
    'is confirmed, and narrower, where some of its rows are served again',
    4,
    { above: '40', isConfirmed: true },
  ],
  ['is closed where rows of below are served again', 2, undefined],
] as const)('a gap in the checkpoints %s', async (_, firstServed, expected) => {
  const double = new ListDouble();
  const all = checkpoints(30, { ties: 1 });
  double.lists.checkpoints = all.slice(0, 2);
  expect((await world.sync(double, { list: 'checkpoints' })).verdict).toBe(
    'complete',
  );
  double.lists.checkpoints = all.slice(5);
  const lost = await world.sync(double, { list: 'checkpoints', isAudit: true });
  expect(lost).toMatchObject({
    verdict: 'incomplete',
    evidence: { missing: [{ code: 'KNOWN_GAP' }] },
  });
  double.lists.checkpoints = all.slice(firstServed - 1);
  const { verdict, evidence } = await world.sync(double, {
    list: 'checkpoints',
  });
  expect({ verdict, evidence }).toMatchObject({
    verdict: 'complete',
    evidence: { because: 'a gap that no audit has confirmed' },
  });
  const { rows } = await world.pool
    .query(`select split_part(above_key, '/', 1) as above,
    confirmed_by_run is not null as "isConfirmed" from mirror.list_gaps where closed_at is null`);
  expect(rows).toEqual(expected === undefined ? [] : [expected]);
});

test('a gap reaches from the last row that is confirmed, and stays one where later rows are held already', async () => {
  const double = new ListDouble();
  // Heights 10, 20, …
  const all = checkpoints(30, { ties: 1 });
  double.lists.checkpoints = all.slice(0, 10);
  expect((await world.sync(double, { list: 'checkpoints' })).verdict).toBe(
    'complete',
  );
  double.lists.checkpoints = all.slice(0, 20);
  const failpoint = (step: string): void => {
    if (step === 'claiming') throw new Error('killed');
  };
  await expect(
    world.sync(double, { list: 'checkpoints' }, { deps: { failpoint } }),
  ).rejects.toThrow('killed');
  double.lists.checkpoints = all.slice(14);
  await world.sync(double, { list: 'checkpoints', isAudit: true });
  const { verdict, evidence } = await world.sync(double, {
    list: 'checkpoints',
  });
  const knownGaps = [
    {
      belowKey: all[9]?.row.key,
      aboveKey: all[14]?.row.key,
      isConfirmed: true,
    },
  ];
  expect({ verdict, evidence }).toMatchObject({
    verdict: 'complete',
    evidence: { knownGaps },
  });
});
