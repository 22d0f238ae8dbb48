/** What a source must not do, and what an audit that found it concludes. */
import { describe, expect, test } from 'vitest';
import {
  checkOrder,
  checkPage,
  DoubtError,
  decideAudit,
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
          const expected =
            rows.length === 0
              ? hasNextPage
                ? 'EMPTY_PAGE_PROMISES_MORE'
                : undefined
              : isOwn
                ? undefined
                : 'ENVELOPE_CONTRADICTS';
          expect(doubtOf(() => checkPage('checkpoints', page))).toBe(expected);
        },
      ),
    );
  });
});

describe('the guard of audits', () => {
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
          const finding = decideAudit(list, found, {});
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
            const finding = decideAudit(list, found, {
              acceptNewNetwork: newNetwork,
              acceptShrunk: shrunk,
            });
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
