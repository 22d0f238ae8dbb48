/** Whether a ledger has only grown since a statement, decided from its entries. */
import { describe, expect, test } from 'vitest';
import { hashText, RowDigest } from '../../src/ledger/digest.ts';
import { findChange } from '../../src/proof/ledger-change.ts';
import type { LedgerRecord } from '../../src/proof/ledger-record.ts';
import { NEVER_ABORTED } from '../support/samples.ts';

const COVERED_TO = '2023-06-10T00:00:00.000000Z';

describe('findChange', () => {
  test('allows entries that follow the covered time, in the same month and later', async () => {
    const before = ['2023-05-02', '2023-06-01', '2023-06-09'];
    const after = [...before, '2023-06-10', '2023-07-01'];
    expect(await changeOf(before, after)).toEqual({ kind: 'grown' });
  });

  test.each([
    ['an entry is missing', ['2023-05-02', '2023-06-01'], ['2023-06-01']],
    ['an entry of the last month is missing', ['2023-06-01'], []],
    [
      'an entry was added to a past month',
      ['2023-05-02'],
      ['2023-05-01', '2023-05-02'],
    ],
    [
      'an entry was added before the covered time',
      ['2023-06-01'],
      ['2023-06-01', '2023-06-09'],
    ],
    [
      'an entry was added to a month without entries',
      ['2023-06-01'],
      ['2023-04-01', '2023-06-01'],
    ],
    [
      'an entry was replaced',
      ['2023-06-01', '2023-06-03'],
      ['2023-06-01', '2023-06-02'],
    ],
    [
      'an entry was replaced and others followed',
      ['2023-06-01', '2023-06-03'],
      ['2023-06-01', '2023-06-02', '2023-06-11'],
    ],
  ])('reports that %s', async (_, before, after) => {
    expect(await changeOf(before, after)).toEqual({
      kind: 'changed',
      reason: expect.stringMatching(/^the database holds/),
    });
  });

  test('reports a ledger that the database no longer holds', async () => {
    const stated = record(['2023-06-01']);
    const change = findChange(
      { stated, now: undefined, coveredTo: COVERED_TO },
      { store: storeOf([]), signal: NEVER_ABORTED },
    );
    expect(await change).toEqual({
      kind: 'changed',
      reason: expect.stringMatching(/does not have this ledger/),
    });
  });

  test('does not compare entries that are not loaded', async () => {
    const unloaded = { notLoaded: '3' };
    const change = changeOf(['2023-06-01'], [], {}, unloaded);
    expect(await change).toEqual({ kind: 'not compared' });
  });

  test('allows entries in months that the statement does not prove whole', async () => {
    const covered: LedgerRecord['covered'] = [
      ['2023-06-05T00:00:00.000000Z', null],
    ];
    const after = ['2023-06-01', '2023-06-06'];
    expect(await changeOf(['2023-06-06'], after, { covered })).toEqual({
      kind: 'grown',
    });
  });
});

function changeOf(
  before: readonly string[],
  after: readonly string[],
  stated: Partial<LedgerRecord> = {},
  now: Partial<LedgerRecord> = {},
) {
  return findChange(
    {
      stated: { ...record(before), ...stated },
      now: { ...record(after), ...now },
      coveredTo: COVERED_TO,
    },
    { store: storeOf(after), signal: NEVER_ABORTED },
  );
}

/** The record of a ledger with an entry on each of these days. */
function record(days: readonly string[]): LedgerRecord {
  const months = [...new Set(days.map((day) => day.slice(0, 7)))];
  return {
    party: 'a',
    asset: null,
    covered: [[null, null]],
    rows: String(days.length),
    months: months.map((month) => {
      const digest = new RowDigest();
      for (const day of days)
        if (day.startsWith(month)) digest.add(hashText(day));
      return [month, String(digest.rows), digest.hex()];
    }),
    notLoaded: '0',
  };
}

function storeOf(days: readonly string[]) {
  return {
    async *readMonth(_: unknown, month: string) {
      yield days
        .filter((day) => day.startsWith(month))
        .map((day) => ({
          segmentId: '1',
          time: `${day}T00:00:00.000000Z`,
          hash: hashText(day),
        }));
    },
  };
}
