/** The account statement of a month, over a real warehouse. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freshWarehouse, startApi, type TestApi } from '../mirror.ts';
import {
  addCoverage,
  addEntries,
  addExports,
  addParties,
  addSegment,
  type Row,
} from '../../support/mirror-arrange.ts';
import { ensurePartitions } from '../../../src/warehouse/store/copy-sink.ts';

const warehouse = await freshWarehouse();
const { pool } = warehouse;
const opened = new AsyncDisposableStack();
let api: TestApi | undefined;
const PARTY = 'a1'.repeat(32);
const OTHER = 'b2'.repeat(32);
const JUMPING = 'c3'.repeat(32);
const PARTLY = 'd4'.repeat(32);
const ONE_SIDED = 'e5'.repeat(32);
const CIRCLING = 'f6'.repeat(32);
const ASSET = 'ef'.repeat(32);

interface Statement {
  readonly accounts: readonly Readonly<Record<string, unknown>>[];
  readonly lines: readonly Readonly<Record<string, unknown>>[];
  readonly verdict: string;
  readonly reasons: readonly string[];
  readonly isCut: boolean;
}

/** An entry of `party` with another party; a negative quantity is sent. */
function entry(
  party: string,
  at: string,
  change: bigint | number,
  balance: bigint | number,
): Row {
  const own = { id: party, type: 'GENERAL', balance };
  const theirs = { id: OTHER, type: 'EXTERNAL', balance: 0 };
  const [from, to] = change < 0 ? [own, theirs] : [theirs, own];
  return {
    party_id: party,
    asset_id: ASSET,
    segment_id: 1,
    vega_time: at,
    transfer_type: 'TRANSFER',
    quantity: change < 0 ? -change : change,
    account_from_party_id: from.id,
    account_from_account_type: from.type,
    account_from_balance: from.balance,
    account_to_party_id: to.id,
    account_to_account_type: to.type,
    account_to_balance: to.balance,
  };
}

beforeAll(async () => {
  opened.use(warehouse);
  await addParties(pool, [PARTY, OTHER, JUMPING, PARTLY, ONE_SIDED, CIRCLING]);
  await addExports(
    pool,
    [PARTY, JUMPING, PARTLY, ONE_SIDED, CIRCLING].map((id) => ({
      party_id: id,
    })),
  );
  const range = { from_time: '2025-12-01Z', to_time: '2026-04-01Z' };
  for (const party_id of [PARTY, JUMPING, CIRCLING])
    await addSegment(pool, {
      party_id,
      ...range,
      object_key: party_id,
      loaded_at: new Date(),
    });
  await addCoverage(pool, {
    party_id: PARTLY,
    from_time: '2026-03-01Z',
    to_time: '2026-03-10 12:00Z',
  });
  await addCoverage(pool, {
    party_id: ONE_SIDED,
    from_time: '2026-01-01Z',
    to_time: '2026-04-01Z',
    sides: 'from',
  });
  const thisMonth = `${new Date().toISOString().slice(0, 7)}-01T00:00:00Z`;
  await addCoverage(pool, {
    party_id: ONE_SIDED,
    from_time: thisMonth,
    to_time: new Date(Date.parse(thisMonth) + 1).toISOString(),
  });
  await ensurePartitions(pool, ['2026-01', '2026-02', '2026-03']);
  const big = 10n ** 40n;
  await addEntries(pool, [
    entry(PARTY, '2026-01-31 23:59:59Z', 100, 100),
    // One block: +50 and -20 leave 130, whichever row is read first.
    entry(PARTY, '2026-02-03 10:00Z', -20, 130),
    entry(PARTY, '2026-02-03 10:00Z', 50, 150),
    entry(PARTY, '2026-02-28 23:59:59.999999Z', big, big + 130n),
    entry(PARTY, '2026-03-01 00:00Z', -30, big + 100n),
    entry(ONE_SIDED, '2026-02-01 00:00Z', -10, 90),
    entry(ONE_SIDED, '2026-02-02 00:00Z', -10, 500),
    entry(CIRCLING, '2026-01-10 00:00Z', -30, 0),
    // One block leads from 0 to 70 and back: both may be its last balance.
    entry(CIRCLING, '2026-02-05 00:00Z', -70, 0),
    entry(CIRCLING, '2026-02-05 00:00Z', 70, 70),
    entry(JUMPING, '2026-02-01 00:00Z', 10, 10),
    entry(JUMPING, '2026-02-02 00:00Z', 10, 25),
  ]);
  api = opened.use(await startApi(warehouse));
});
afterAll(() => opened.disposeAsync());

async function read(party: string, month: string): Promise<Statement> {
  const url = `${api?.url}/console/parties/${party}/statement?month=${month}`;
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return (await response.json()) as Statement;
}

describe('the statement of a month', () => {
  test('has opening and closing balances that its entries explain, exact to the last digit', async () => {
    const { accounts, lines, verdict, reasons } = await read(PARTY, '2026-02');
    expect(accounts).toEqual([
      {
        assetId: ASSET,
        accountType: 'GENERAL',
        marketId: null,
        entries: '3',
        opening: ['100'],
        received: `${10n ** 40n + 50n}`,
        sent: '20',
        closing: [`${10n ** 40n + 130n}`],
        sums: 'agree',
      },
    ]);
    expect(lines.map(({ change }) => change)).toEqual([
      '50',
      '-20',
      `${10n ** 40n}`,
    ]);
    expect({ verdict, reasons }).toEqual({ verdict: 'complete', reasons: [] });
  });

  test('of a month without entries repeats the balance before it', async () => {
    const { accounts, lines } = await read(JUMPING, '2026-03');
    expect(lines).toEqual([]);
    expect(accounts).toMatchObject([
      { opening: ['25'], closing: ['25'], entries: '0', sums: 'agree' },
    ]);
  });

  test('chooses the balances that its sums explain, where a block leaves several', async () => {
    const { accounts, lines } = await read(CIRCLING, '2026-02');
    expect(accounts).toMatchObject([
      { opening: ['0'], closing: ['0'], sums: 'agree' },
    ]);
    expect(lines.map(({ balance }) => balance)).toEqual(['70', '0']);
  });

  test('begins with the balance before its first entry if no earlier one is mirrored', async () => {
    const { accounts } = await read(PARTY, '2026-01');
    expect(accounts).toMatchObject([
      { opening: ['0'], received: '100', closing: ['100'], sums: 'agree' },
    ]);
  });

  test('is suspicious if a balance jumps between two entries', async () => {
    const { accounts, verdict, reasons } = await read(JUMPING, '2026-02');
    expect(accounts).toMatchObject([
      { opening: ['0'], received: '20', closing: ['25'], sums: 'differ' },
    ]);
    expect(verdict).toBe('suspicious');
    expect(reasons.join()).toContain('The entries of 1 account do not add up');
  });

  test('of a source that exports one side is not suspicious: its sums cannot agree', async () => {
    const found = await read(ONE_SIDED, '2026-02');
    expect(found).toMatchObject({
      verdict: 'complete',
      reasons: [],
      isSentOnly: true,
      provenTo: null,
    });
    expect(found.accounts).toMatchObject([{ sent: '20', sums: 'oneSided' }]);
  });

  test('of the month that is not over is complete up to the end of its coverage', async () => {
    const month = new Date().toISOString().slice(0, 7);
    expect(await read(ONE_SIDED, month)).toMatchObject({
      verdict: 'complete',
      reasons: [],
      provenTo: `${month}-01T00:00:00.001Z`,
    });
  });

  test('of a month that has not begun is incomplete', async () => {
    const { verdict, reasons } = await read(PARTY, '2099-12');
    expect([verdict, reasons]).toEqual([
      'incomplete',
      ['The month has not begun.'],
    ]);
  });

  test('is incomplete if a part of the month is not covered, and names the part', async () => {
    const { verdict, reasons } = await read(PARTLY, '2026-03');
    expect({ verdict, reasons }).toEqual({
      verdict: 'incomplete',
      reasons: [
        'Nothing is known from 2026-03-10 12:00:00 UTC to 2026-04-01 00:00:00 UTC.',
      ],
    });
  });

  test('of the month that is not over says after which instant nothing is known yet', async () => {
    const month = new Date().toISOString().slice(0, 7);
    const { verdict, reasons } = await read(PARTLY, month);
    expect({ verdict, reasons }).toEqual({
      verdict: 'incomplete',
      reasons: [
        `The month is not over: nothing is known yet after ${month}-01 00:00:00 UTC.`,
      ],
    });
  });

  test('of a party that was never exported is incomplete, and empty', async () => {
    const { accounts, verdict } = await read(OTHER, '2026-02');
    expect([accounts, verdict]).toEqual([[], 'incomplete']);
  });

  test.each(['2026-13', '2026-1', 'march', '1999-01'])(
    'is not given for the month %s',
    async (month) => {
      await expect(read(PARTY, month)).rejects.toThrow('answered 400');
    },
  );
});
