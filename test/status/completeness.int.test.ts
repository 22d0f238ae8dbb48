/** The one query that says what is covered, over real Postgres. */
import { beforeEach, describe, expect, test } from 'vitest';
import { openWarehouse } from '../../src/postgres/database.ts';
import {
  readCompleteness,
  recordScope,
} from '../../src/status/store/completeness.ts';
import { readStoredFacts } from '../../src/status/store/status-store.ts';
import { freshDatabase } from '../support/database.ts';
import {
  addCoverage,
  addEpoch,
  addExports,
  addParties,
  emptyLedgers,
  emptyLists,
  listAgain,
  quarantineLedger,
  setSourceProfile,
} from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
const { db, pool } = warehouse;
const id = (digit: string): string => digit.repeat(64);

beforeEach(async () => {
  await emptyLedgers(pool);
  await emptyLists(pool);
  await setSourceProfile(pool, {});
  await recordScope(db, undefined);
  await addParties(pool, [id('1'), id('2'), id('3'), 'network'], 1);
});

async function cover(
  party: string,
  from: string,
  to: string,
  more: { open?: boolean; asset?: string } = {},
): Promise<void> {
  const range = { from_time: from, to_time: to, open: more.open ?? false };
  await addCoverage(pool, {
    party_id: party,
    asset_id: more.asset ?? null,
    ...range,
  });
}

const BEGINNING = '1970-01-01T00:00:00Z';

describe('the completeness of the ledgers', () => {
  test('counts a ledger that was never asked as missing, and leaves `network` out', async () => {
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z');
    expect(await readCompleteness(db)).toEqual({
      listed: 3,
      configured: null,
      wanted: 3,
      covered: 1,
      neverAsked: 2,
      coveredTo: expect.stringMatching(/^2023-05-01T00:00:00/) as string,
      openDoubts: 0,
    });
  });

  test('reaches as far as the ledger that is covered the least far, over ranges that touch', async () => {
    for (const digit of ['1', '2', '3'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await cover(id('1'), '2023-05-01T00:00:00Z', '2023-06-01T00:00:00Z');
    const all = await readCompleteness(db);
    expect(all).toMatchObject({ covered: 3, neverAsked: 0 });
    expect(all.coveredTo).toMatch(/^2023-05-01/);
  });

  test('is of no instant in the status while one ledger is not covered', async () => {
    const asOf = async (): Promise<string | null | undefined> => {
      const { streams } = await readStoredFacts(db);
      return streams.find(({ name }) => name === 'ledger')?.asOfTime;
    };
    for (const digit of ['1', '2'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    expect(await asOf()).toBe(null);
    await cover(id('3'), BEGINNING, '2023-05-02T00:00:00Z');
    expect(await asOf()).toMatch(/^2023-05-01/);
  });

  test.each([
    ['begins late', [['2023-01-01T00:00:00Z', '2023-05-01T00:00:00Z', false]]],
    [
      'has a gap',
      [
        [BEGINNING, '2023-05-01T00:00:00Z', false],
        ['2023-05-02T00:00:00Z', '2023-05-03T00:00:00Z', false],
      ],
    ],
    ['is open', [[BEGINNING, '2023-05-01T00:00:00Z', true]]],
  ] as const)(
    'does not count a ledger whose coverage %s',
    async (_what, ranges) => {
      for (const digit of ['2', '3'])
        await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
      for (const [from, to, open] of ranges)
        await cover(id('1'), from, to, { open });
      expect(await readCompleteness(db)).toMatchObject({
        covered: 2,
        wanted: 3,
      });
    },
  );

  test('does not count a ledger of which a segment is quarantined, and does not call it never asked', async () => {
    for (const digit of ['1', '2', '3'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await quarantineLedger(pool, id('1'));
    expect(await readCompleteness(db)).toMatchObject({
      covered: 2,
      wanted: 3,
      neverAsked: 0,
    });
  });

  test('does not call a ledger never asked of whose answer nothing could be closed', async () => {
    for (const digit of ['2', '3'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await addExports(pool, [
      { party_id: id('1'), last_asked_at: '2023-05-01T00:00:00Z' },
    ]);
    expect(await readCompleteness(db)).toMatchObject({
      covered: 2,
      wanted: 3,
      neverAsked: 0,
    });
  });

  test('wants every asset that was ever asked for where the source demands one', async () => {
    for (const digit of ['2', '3'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z', { asset: id('a') });
    expect(await readCompleteness(db)).toMatchObject({ covered: 2 });
    await setSourceProfile(pool, { assetRequired: true });
    await addExports(
      pool,
      ['a', 'b'].map((asset) => ({ party_id: id('1'), asset_id: id(asset) })),
    );
    expect(await readCompleteness(db)).toMatchObject({ covered: 2 });
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z', { asset: id('b') });
    expect(await readCompleteness(db)).toMatchObject({ covered: 3 });
  });

  test('begins anew with an epoch: earlier checks say nothing of it', async () => {
    for (const digit of ['1', '2', '3'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await addEpoch(pool, 2);
    await listAgain(pool, [id('1'), id('2')], 2);
    expect(await readCompleteness(db)).toMatchObject({
      listed: 2,
      covered: 0,
      neverAsked: 2,
    });
    await cover(id('1'), '2023-05-01T00:00:00Z', '2023-05-02T00:00:00Z');
    expect(await readCompleteness(db)).toMatchObject({
      listed: 2,
      covered: 1,
      neverAsked: 1,
    });
  });

  test('counts only the configured parties, listed or not, where a list is configured', async () => {
    await recordScope(db, [id('1'), id('9')]);
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z');
    expect(await readCompleteness(db)).toMatchObject({
      listed: 3,
      configured: 2,
      wanted: 2,
      covered: 1,
      neverAsked: 1,
    });
  });
});
