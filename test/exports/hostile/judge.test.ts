import { describe, expect, test } from 'vitest';
import {
  makeLedger,
  toLedgerRow,
  writeInstant,
  type LedgerRow,
} from './ledger.ts';
import {
  PARTLY,
  REFUSED,
  WHOLE,
  type Expected,
  type Verdict,
} from './cases/case.ts';
import { judgeOutcome } from './judge.ts';

const PARTY = 'ab'.repeat(32);
const NOW = 1_690_000_000_000_000n;
const truth = makeLedger(NOW, { seed: 'judge', party: PARTY }).map((entry) =>
  toLedgerRow(entry, PARTY, true),
);
const repeated = truth.findIndex(
  (row, at) =>
    at > 0 &&
    row === truth[at] &&
    JSON.stringify(row) === JSON.stringify(truth[at - 1]),
);

function judge(
  verdict: Verdict,
  published: readonly LedgerRow[],
  expected: Expected,
  rest: {
    mustHold?: readonly LedgerRow[];
    mayStay?: readonly LedgerRow[];
    requests?: number;
  } = {},
): string[] {
  return judgeOutcome(
    {
      verdict,
      published,
      truth,
      mustHold: [],
      mayStay: [],
      requests: 1,
      ...rest,
    },
    expected,
  );
}

describe('a generated ledger', () => {
  test('is the same for the same seed, in order of time, with rows that repeat', () => {
    const again = makeLedger(NOW, { seed: 'judge', party: PARTY });
    expect(again.map((entry) => toLedgerRow(entry, PARTY, true))).toEqual(
      truth,
    );
    expect(again.map(({ time }) => time)).toEqual(
      again.map(({ time }) => time).toSorted(compareTimes),
    );
    expect(repeated).toBeGreaterThan(0);
    expect(
      new Set(truth.map((row) => String(row['effect']).startsWith('-'))),
    ).toEqual(new Set([true, false]));
  });

  test('writes instants before 1970, too', () => {
    expect(writeInstant(-1n)).toBe('1969-12-31T23:59:59.999999Z');
    expect(writeInstant(NOW)).toBe('2023-07-22T04:26:40.000000Z');
  });
});

describe('the judge', () => {
  test('finds nothing wrong with exactly the truth, in any order', () => {
    expect(judge('complete', truth.toReversed(), WHOLE)).toEqual([]);
  });

  test('rejects `complete` where one row is missing, even a repeated one', () => {
    expect(judge('complete', truth.slice(1), WHOLE)[0]).toMatch(
      /^1 rows of the truth are missing/,
    );
    expect(
      judge(
        'complete',
        truth.filter((_, at) => at !== repeated),
        WHOLE,
      )[0],
    ).toMatch(/^1 rows of the truth/);
    expect(
      judge('complete', truth.slice(1), {
        ...WHOLE,
        cannotKnow: true,
        published: 'at-most',
      }),
    ).toEqual([]);
  });

  test('finds rows that are foreign, or come too often, under any verdict', () => {
    const foreign = { ...truth[0], quantity: '1' };
    expect(judge('incomplete', [...truth, foreign], PARTLY)[0]).toMatch(
      /^1 rows are not in the truth/,
    );
    expect(judge('failed', [...truth, truth[0] ?? {}], PARTLY)[0]).toMatch(
      /^1 rows are not in the truth/,
    );
    expect(
      judge('incomplete', [...truth, foreign], PARTLY, { mayStay: [foreign] }),
    ).toEqual([]);
  });

  test('finds a wrong verdict, rows where none is right, rows that had to be there, and too many requests', () => {
    expect(judge('complete', truth, REFUSED)).toEqual([
      'the verdict is complete, not incomplete or failed or suspicious',
    ]);
    expect(judge('failed', truth.slice(0, 3), REFUSED)).toEqual([
      '3 rows are published, where none is right',
    ]);
    expect(
      judge('suspicious', [], PARTLY, { mustHold: truth.slice(0, 2) })[0],
    ).toMatch(/^2 rows are not published/);
    expect(judge('failed', [], PARTLY, { requests: 99 })).toEqual([
      '99 requests, more than 60',
    ]);
  });

  test('compares only the columns that both sides have, and takes a missing value for an empty one', () => {
    const known = truth.map((row) => ({
      ...row,
      account_to_market_id: row['account_to_market_id'] || null,
      segment_id: '1',
    }));
    for (const row of known) Reflect.deleteProperty(row, 'effect');
    expect(judge('complete', known, WHOLE)).toEqual([]);
  });
});

function compareTimes(a: bigint, b: bigint): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
