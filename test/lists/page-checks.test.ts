/** What a source must not do, and what an audit that found it concludes. */
import { describe, expect, test } from 'vitest';
import {
  checkOrder,
  checkPage,
  DoubtError,
  decideAudit,
  type AuditContext,
  type AuditTotals,
} from '../../src/lists/page-checks.ts';
import type { ListedRow } from '../../src/lists/ports.ts';
import { fc } from '../support/properties.ts';

const heights = fc.array(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), {
  maxLength: 12,
});
const rowsAt = (all: readonly bigint[]): ListedRow[] =>
  all.map((height, at) => ({
    cursor: `c${at}`,
    key: `${height}/h${at}/b`,
    extra: undefined,
  }));
const byHeight = (all: readonly bigint[]): bigint[] =>
  all.toSorted((a, b) => (a < b ? -1 : Number(a > b)));

/** The code of the doubt; undefined where the check passes. */
function doubtOf(check: () => void): string | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    if (error instanceof DoubtError) return error.code;
    throw error;
  }
}

describe('the guard of heights', () => {
  test('accepts only heights that never go down, whatever their size', () => {
    fc.assert(
      fc.property(heights, (all) => {
        const isSorted = byHeight(all).every(
          (height, at) => height === all[at],
        );
        expect(
          doubtOf(() => checkOrder('checkpoints', undefined, rowsAt(all))) ===
            undefined,
        ).toBe(isSorted);
        const [first, ...rest] = rowsAt(all);
        expect(
          doubtOf(() => checkOrder('checkpoints', first?.key, rest)) ===
            undefined,
        ).toBe(isSorted);
      }),
    );
  });
});

describe('the guard of parties', () => {
  test('accepts only lists in which each party comes once', () => {
    fc.assert(
      fc.property(fc.array(fc.string(), { maxLength: 10 }), (ids) => {
        const rows = ids.map((key): ListedRow => ({
          cursor: 'c',
          key,
          extra: undefined,
        }));
        expect(doubtOf(() => checkOrder('parties', undefined, rows))).toBe(
          new Set(ids).size === ids.length ? undefined : 'ROW_TWICE',
        );
      }),
    );
  });
});

describe('the guard of page envelopes', () => {
  test('accepts an envelope that names its own edges or nothing', () => {
    const cursor = fc.option(fc.constantFrom('c0', 'c1', 'c9'), {
      nil: undefined,
    });
    fc.assert(
      fc.property(
        heights,
        cursor,
        cursor,
        fc.boolean(),
        (all, startCursor, endCursor, hasNextPage) => {
          const rows = rowsAt(byHeight(all));
          const page = {
            rows,
            hasNextPage,
            startCursor,
            endCursor,
            blockHeight: undefined,
            blockTime: undefined,
          };
          const isOwn =
            (startCursor === undefined || startCursor === rows[0]?.cursor) &&
            (endCursor === undefined || endCursor === rows.at(-1)?.cursor);
          const doubtOfEmpty = hasNextPage
            ? 'EMPTY_PAGE_PROMISES_MORE'
            : undefined;
          const doubtOfFull = isOwn ? undefined : 'ENVELOPE_CONTRADICTS';
          expect(doubtOf(() => checkPage('checkpoints', page))).toBe(
            rows.length === 0 ? doubtOfEmpty : doubtOfFull,
          );
        },
      ),
    );
  });
});

/** No larger list was ever claimed, and no earlier audit lacked the newest rows. */
const LAST_CLAIM: AuditContext = {
  largestClaimed: 0n,
  isMissingConfirmed: false,
  height: null,
};

describe('the guard of audits', () => {
  const shown: AuditTotals = {
    served: 99n,
    confirmed: 100n,
    common: 99n,
    missed: 0n,
    gone: 1n,
    pruned: 0n,
    goneNewest: 0n,
    unconfirmed: 0n,
    isAllNewer: false,
  };

  test.each(['parties', 'checkpoints'] as const)(
    'doubts %s whose newest row is missing, however few are',
    (list) => {
      const found = { ...shown, goneNewest: 1n };
      expect(decideAudit(list, found, {}, LAST_CLAIM)).toMatchObject({
        code: 'NEWEST_ROWS_MISSING',
        meta: { rows: '1' },
      });
      const confirmed = { ...LAST_CLAIM, isMissingConfirmed: true };
      expect(decideAudit(list, found, {}, confirmed)).toBe('same');
      const accepted = { acceptShrunk: true };
      expect(decideAudit(list, found, accepted, LAST_CLAIM)).toBe('same');
      expect(decideAudit(list, shown, {}, LAST_CLAIM)).toBe('same');
    },
  );

  test('measures erosion of parties against the largest list ever claimed', () => {
    const found = { ...shown, served: 91n, common: 91n, gone: 9n };
    expect(decideAudit('parties', found, {}, LAST_CLAIM)).toBe('same');
    const larger = { ...LAST_CLAIM, largestClaimed: 110n };
    expect(decideAudit('parties', found, {}, larger)).toMatchObject({
      code: 'LIST_SHRANK',
    });
    // Old checkpoints fall out of the source's retention.
    expect(decideAudit('checkpoints', found, {}, larger)).toBe('same');
  });

  const few = fc.bigInt({ min: 0n, max: 50n });
  /** Counts that can be: what was confirmed is common, gone or pruned. */
  const totals = fc
    .record({
      common: few,
      gone: few,
      pruned: few,
      fresh: few,
      isAllNewer: fc.boolean(),
    })
    .map(({ common, gone, pruned, fresh, isAllNewer }): AuditTotals => {
      const confirmed = common + gone + pruned;
      return {
        served: common + fresh,
        confirmed,
        common,
        missed: 0n,
        gone,
        pruned,
        goneNewest: 0n,
        unconfirmed: 0n,
        isAllNewer: isAllNewer && common === 0n,
      };
    });

  test('reports a list that has lost more than two rows and a tenth', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('parties' as const, 'checkpoints' as const),
        totals,
        (list, found) => {
          const finding = decideAudit(list, found, {}, LAST_CLAIM);
          // Old checkpoints fall out of the source's retention.
          const lost =
            list === 'parties' ? found.gone + found.pruned : found.gone;
          const isFew =
            (lost <= 2n || lost * 10n <= found.confirmed) && found.common > 0n;
          expect(finding !== 'same' || found.confirmed === 0n || isFew).toBe(
            true,
          );
        },
      ),
    );
  });

  test('accepts another network only where a person said so, and otherwise names one of two doubts', () => {
    fc.assert(
      fc.property(
        totals,
        fc.boolean(),
        fc.boolean(),
        (found, newNetwork, shrunk) => {
          for (const list of ['parties', 'checkpoints'] as const) {
            const accepted = {
              acceptNewNetwork: newNetwork,
              acceptShrunk: shrunk,
            };
            const finding = decideAudit(list, found, accepted, LAST_CLAIM);
            const code =
              finding instanceof DoubtError ? finding.code : undefined;
            const kind = finding instanceof DoubtError ? 'doubt' : finding;
            const isRight = {
              same: true,
              'new network': newNetwork && found.common === 0n,
              gap: list === 'checkpoints' && found.isAllNewer,
              doubt:
                code === 'OTHER_NETWORK' || (code === 'LIST_SHRANK' && !shrunk),
            };
            expect([kind, isRight[kind]]).toEqual([kind, true]);
          }
        },
      ),
    );
  });
});
