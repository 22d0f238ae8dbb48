import { describe, expect, test } from 'vitest';
import { DAY_MICROS } from '../../../src/time/time.ts';
import { chooseAudited } from '../../../src/exports/planning/choose-audited.ts';
import type { Coverage } from '../../../src/catalog/coverage-rows.ts';

const NOW = 20_000n * DAY_MICROS;

/** Closed, a day each, `age` days old; checked the longer ago the older it is. */
function segment(age: number, changes: Partial<Coverage> = {}): Coverage {
  const from = NOW - BigInt(age) * DAY_MICROS;
  return {
    coverageId: BigInt(age),
    assetId: undefined,
    from,
    to: from + DAY_MICROS,
    open: false,
    sides: 'both',
    objectKey: `segment ${age}`,
    rows: 10n,
    tail: undefined,
    checkedAt: from,
    epoch: 1,
    content: { bytes: 1000n, digest: '', rowForm: '', columns: [] },
    ...changes,
  };
}

const choice = {
  share: 1,
  scope: { partyId: 'aa'.repeat(32) },
  epoch: 1,
  now: NOW,
};
const days = (count: number): Coverage[] =>
  Array.from({ length: count }, (_, at) => segment(at + 3));

describe('the audit of closed segments', () => {
  test('begins with those whose last check lies the longest back', () => {
    const chosen = chooseAudited(days(40), { ...choice, share: 0.25 });
    expect(chosen.length).toBeGreaterThanOrEqual(10);
    expect(chosen.slice(0, 10).map(({ coverageId }) => coverageId)).toEqual(
      Array.from({ length: 10 }, (_, at) => BigInt(42 - at)),
    );
  });

  test('takes what was not compared for too long, whatever the share and the chance', () => {
    const ids = (withinMicros: bigint | undefined): (bigint | undefined)[] =>
      chooseAudited(days(40), { ...choice, share: 0.001, withinMicros }).map(
        ({ coverageId }) => coverageId,
      );
    expect(ids(undefined).length).toBeLessThanOrEqual(1);
    expect(ids(38n * DAY_MICROS)).toEqual([42n, 41n, 40n, 39n, 38n]);
  });

  test('asks for the share of a ledger over many nights, however few segments it has', () => {
    const nights = Array.from(
      { length: 2_000 },
      (_, night) => NOW + BigInt(night) * DAY_MICROS,
    );
    const chosen = nights.map((now) => {
      const [row] = chooseAudited(
        [segment(3, { from: now - 3n * DAY_MICROS, checkedAt: 0n })],
        {
          ...choice,
          share: 0.05,
          now,
        },
      );
      return row === undefined ? 0 : 1;
    });
    const asked = chosen.reduce((sum: number, one) => sum + one, 0);
    expect(asked).toBeGreaterThan(60);
    expect(asked).toBeLessThan(140);
  });

  test('asks for all that a source keeps, where it says for how long', () => {
    const years = [segment(100), segment(1_000)];
    expect(chooseAudited(years, choice)).toEqual([]);
    expect(
      chooseAudited(years, { ...choice, retentionMicros: 3_650n * DAY_MICROS }),
    ).toHaveLength(2);
  });

  test('takes the first segment too, whose range begins before all entries', () => {
    expect(chooseAudited([segment(3, { from: 0n })], choice)).toHaveLength(1);
  });

  test.each([
    ['the source may not have any more', { from: NOW - 100n * DAY_MICROS }],
    ['is open', { open: true }],
    ['was checked within a day', { checkedAt: NOW - DAY_MICROS / 2n }],
    ['is of another chain', { epoch: 2 }],
    ['is asked for anyway, as its object is lost', { isFaulty: true }],
    ['holds nothing', { content: undefined }],
    ['is of one asset, where all are exported', { assetId: 'a5'.repeat(32) }],
  ])('leaves out what %s', (_, changes) => {
    expect(chooseAudited([segment(3, changes)], choice)).toEqual([]);
  });

  test('takes ranges without entries before the newest one, and leaves those behind it to the overlap check', () => {
    const empty = { content: undefined, objectKey: undefined, rows: 0n };
    const rows = [segment(9, empty), segment(5), segment(3, empty)];
    expect(
      chooseAudited(rows, choice).map(({ coverageId }) => coverageId),
    ).toEqual([9n, 5n]);
  });

  test('asks for nothing where the share is none', () => {
    expect(chooseAudited(days(40), { ...choice, share: 0 })).toEqual([]);
  });
});
