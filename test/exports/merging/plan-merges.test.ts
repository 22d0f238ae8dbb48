import { describe, expect, test } from 'vitest';
import { monthStart } from '../../../src/time/time.ts';
import {
  isSmall,
  planMerges,
} from '../../../src/exports/merging/plan-merges.ts';
import type { Coverage } from '../../../src/catalog/coverage-rows.ts';
import { at } from '../ledger-double.ts';

const BEFORE = at('2023-06-01T00:00:00Z');
const FORM = 'sha256sum-v1/0/+00';

/** Ranges side by side from the given instant on; rows 0 is a range without entries. */
function coverage(
  from: string,
  ...ranges: (readonly [
    to: string,
    rows: number,
    changes?: Partial<Coverage>,
  ])[]
): Coverage[] {
  let last = at(from);
  return ranges.map(([to, rows, changes], index) => {
    const row: Coverage = {
      coverageId: BigInt(index + 1),
      assetId: undefined,
      from: last,
      to: at(to),
      open: false,
      sides: 'both',
      objectKey: rows === 0 ? undefined : `ledger/${index}`,
      rows: BigInt(rows),
      tail: undefined,
      epoch: 1,
      content:
        rows === 0
          ? undefined
          : {
              bytes: BigInt(rows) * 100n,
              digest: '',
              rowForm: FORM,
              columns: [],
            },
      ...changes,
    };
    last = row.to;
    return row;
  });
}

function ids(rows: readonly Coverage[], bytesMax = 1_000_000n): number[][] {
  return planMerges(rows, { before: BEFORE, bytesMax }).map((group) =>
    group.map(({ coverageId }) => Number(coverageId)),
  );
}

const DAYS = [
  ['2023-05-01T02:00:00Z', 5],
  ['2023-05-02T02:00:00Z', 5],
  ['2023-05-03T02:00:00Z', 0],
  ['2023-05-04T02:00:00Z', 5],
] as const;

describe('segments of one month', () => {
  test('become one, with the ranges without entries between them', () => {
    expect(ids(coverage('2023-04-30T02:00:00Z', ...DAYS))).toEqual([
      [1, 2, 3, 4],
    ]);
  });

  test('are apart from those of another month: what ends in a month belongs to it', () => {
    const rows = coverage(
      '1970-01-01T00:00:00Z',
      ['2023-04-29T02:00:00Z', 5],
      ['2023-04-30T02:00:00Z', 5],
      ['2023-05-01T02:00:00Z', 5],
      ['2023-05-02T02:00:00Z', 5],
    );
    expect(ids(rows)).toEqual([
      [1, 2],
      [3, 4],
    ]);
  });

  test('wait until the month is over', () => {
    const rows = coverage(
      '2023-05-31T02:00:00Z',
      ['2023-06-01T00:00:00Z', 5],
      ['2023-06-01T02:00:00Z', 5],
    );
    expect(ids(rows)).toEqual([]);
    expect(monthStart(at('2023-06-30T23:59:59.999999Z'))).toBe(BEFORE);
  });

  test('stay alone where there is one of them', () => {
    expect(
      ids(
        coverage(
          '2023-05-01T00:00:00Z',
          ['2023-05-02T00:00:00Z', 5],
          ['2023-05-03T00:00:00Z', 0],
        ),
      ),
    ).toEqual([]);
  });

  test.each<[string, Partial<Coverage>]>([
    ['is open', { open: true }],
    ['is faulty', { isFaulty: true }],
    ['has one side only', { sides: 'from' }],
    ['is of another chain', { epoch: 2 }],
    ['is of one asset', { assetId: 'a0' }],
    [
      'has other columns',
      {
        content: {
          bytes: 500n,
          digest: '',
          rowForm: 'sha256sum-v1/1/+00',
          columns: [],
        },
      },
    ],
    [
      'is large',
      { content: { bytes: 500_001n, digest: '', rowForm: FORM, columns: [] } },
    ],
    ['begins behind a hole', { from: at('2023-05-01T03:00:00Z') }],
  ])('are not merged with one that %s', (_, changes) => {
    const rows = coverage(
      '2023-04-30T02:00:00Z',
      ['2023-05-01T02:00:00Z', 5],
      ['2023-05-02T02:00:00Z', 5, changes],
    );
    expect(ids(rows)).toEqual([]);
  });

  test('are as many objects as their bytes need', () => {
    expect(ids(coverage('2023-04-30T02:00:00Z', ...DAYS), 1_000n)).toEqual([
      [1, 2, 3],
    ]);
    expect(isSmall(500n, { bytesMax: 1_000n })).toBe(true);
  });

  test('leave a range alone that was empty for longer than the month', () => {
    const rows = coverage(
      '2023-05-01T00:00:00Z',
      ['2023-05-02T00:00:00Z', 5],
      ['2023-05-03T00:00:00Z', 5],
      ['2023-05-04T00:00:00Z', 0, { from: at('2023-04-01T00:00:00Z') }],
      ['2023-05-05T00:00:00Z', 5],
    );
    expect(ids(rows)).toEqual([[1, 2]]);
  });
});
