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
  addRun,
  emptyLedgers,
  emptyLists,
  emptyRuns,
  listAgain,
  markPartyGone,
  quarantineLedger,
  setCoverageCheckedAt,
  setSourceProfile,
} from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
const { db, pool } = warehouse;
const id = (digit: string): string => digit.repeat(64);

const EVERY_PARTY = { partyIds: undefined };

beforeEach(async () => {
  await emptyLedgers(pool);
  await emptyLists(pool);
  await setSourceProfile(pool, {});
  await recordScope(db, EVERY_PARTY);
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
      comparedSince: expect.any(String) as string,
      unlisted: 0,
      unlistedParties: [],
      removed: 0,
      removedParties: [],
      quarantined: 0,
      openDoubts: 0,
      unreadLists: ['parties', 'checkpoints'],
      knownGaps: 0,
      unconfirmedGaps: 0,
      notLoaded: 0,
      isLoading: false,
      hasFailedVerify: false,
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

  test('tells since when the range that was compared the longest ago was not looked at', async () => {
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z');
    await setCoverageCheckedAt(pool, '2023-05-02T00:00:00Z');
    await cover(id('2'), BEGINNING, '2023-05-01T00:00:00Z');
    const { comparedSince } = await readCompleteness(db);
    expect(comparedSince).toMatch(/^2023-05-02T00:00:00/);
  });

  test('expects a nightly run to load until its load has ended', async () => {
    await emptyRuns(pool);
    const isLoading = async () => (await readCompleteness(db)).isLoading;
    expect(await isLoading()).toBe(false);

    const running = { state: 'running', subject: 'now' };
    const runId = await addRun(pool, { ...running, kind: 'nightly' });
    expect(await isLoading()).toBe(true);

    await addRun(pool, {
      kind: 'load',
      subject: 'warehouse and lake',
      parent_run_id: runId,
      state: 'done',
      verdict: 'complete',
      finished_at: '2023-05-02T00:00:00Z',
    });
    expect(await isLoading()).toBe(false);
    await emptyRuns(pool);
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

  test('wants the configured assets and no others if the source demands one', async () => {
    for (const digit of ['2', '3'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z', { asset: id('a') });
    expect(await readCompleteness(db)).toMatchObject({ covered: 2 });

    // An order for an asset that is not configured leaves a row behind.
    await setSourceProfile(pool, { assetRequired: true });
    await addExports(
      pool,
      ['a', 'd'].map((asset) => ({ party_id: id('1'), asset_id: id(asset) })),
    );
    const configure = (...assets: string[]) =>
      recordScope(db, { partyIds: undefined, assetIds: assets.map(id) });
    await configure('a');
    expect(await readCompleteness(db)).toMatchObject({ covered: 3 });

    await configure('a', 'b');
    expect(await readCompleteness(db)).toMatchObject({ covered: 2 });
    await cover(id('1'), BEGINNING, '2023-05-01T00:00:00Z', { asset: id('b') });
    expect(await readCompleteness(db)).toMatchObject({ covered: 3 });

    // Another asset that is covered is not instead of one that is configured.
    await configure('a', 'c');
    expect(await readCompleteness(db)).toMatchObject({ covered: 2 });
    await configure('a');
    expect(await readCompleteness(db)).toMatchObject({ covered: 3 });
  });

  test('counts a quarantined export only if its asset is configured', async () => {
    await setSourceProfile(pool, { assetRequired: true });
    const failed = {
      party_id: id('1'),
      quarantined_at: '2023-05-01T00:00:00Z',
    };
    await addExports(pool, [{ ...failed, asset_id: id('d') }]);
    await recordScope(db, { partyIds: undefined, assetIds: [id('a')] });
    expect(await readCompleteness(db)).toMatchObject({ quarantined: 0 });
    await addExports(pool, [{ ...failed, asset_id: id('a') }]);
    expect(await readCompleteness(db)).toMatchObject({ quarantined: 1 });
  });

  test('counts no ledger by its assets while the configuration names none', async () => {
    await setSourceProfile(pool, { assetRequired: true });
    for (const digit of ['1', '2', '3'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z', {
        asset: id('a'),
      });
    expect(await readCompleteness(db)).toMatchObject({ covered: 0 });
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

  test('wants the configured parties, and names those that the source does not list', async () => {
    await recordScope(db, { partyIds: [id('1'), id('9'), 'network'] });
    for (const digit of ['1', '9'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    expect(await readCompleteness(db)).toMatchObject({
      listed: 3,
      wanted: 2,
      covered: 1,
      unlisted: 1,
      unlistedParties: [id('9')],
    });
  });

  test('names parties that the source removed, and wants nothing of them', async () => {
    for (const digit of ['1', '2'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await addExports(pool, [
      { party_id: id('3'), quarantined_at: '2023-05-01T00:00:00Z' },
    ]);
    expect(await readCompleteness(db)).toMatchObject({
      covered: 2,
      wanted: 3,
      quarantined: 1,
    });

    await markPartyGone(pool, id('3'));
    expect(await readCompleteness(db)).toMatchObject({
      covered: 2,
      wanted: 2,
      removed: 1,
      removedParties: [id('3')],
      quarantined: 0,
    });
  });

  test('does not count a configured party that the source removed as covered', async () => {
    await recordScope(db, { partyIds: [id('1'), id('3')] });
    for (const digit of ['1', '3'])
      await cover(id(digit), BEGINNING, '2023-05-01T00:00:00Z');
    await markPartyGone(pool, id('3'));
    expect(await readCompleteness(db)).toMatchObject({
      covered: 1,
      wanted: 2,
      unlistedParties: [id('3')],
      removed: 0,
    });
  });
});
