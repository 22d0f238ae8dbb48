import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import type { Micros } from '../../../src/time/time.ts';
import type { Coverage } from '../../../src/catalog/coverage-rows.ts';
import {
  overlaps,
  type Range,
  subtract,
  union,
} from '../../../src/ledger/ranges.ts';
import {
  type RequestPlan,
  planRequest,
} from '../../../src/exports/planning/remaining.ts';

const SECOND = 1_000_000n;
/** Small seconds, so that ranges meet in every way. */
const second = fc.integer({ min: 0, max: 40 });
const range = fc
  .tuple(second, fc.integer({ min: 1, max: 12 }))
  .map(([from, length]) => ({
    from: BigInt(from) * SECOND,
    to: BigInt(from + length) * SECOND,
  }));

function holds(ranges: readonly Range[], at: Micros): boolean {
  return ranges.some(({ from, to }) => at >= from && at < to);
}

const instants = Array.from(
  { length: 120 },
  (_, half) => (BigInt(half) * SECOND) / 2n,
);

describe('sets of ranges', () => {
  test('keep exactly the instants outside of what is subtracted', () => {
    fc.assert(
      fc.property(
        range,
        fc.array(range, { maxLength: 6 }),
        (whole, excluded) => {
          const rest = subtract(whole, excluded);
          for (const at of instants) {
            expect(holds(rest, at)).toBe(
              holds([whole], at) && !holds(excluded, at),
            );
          }
          for (const [index, { from }] of rest.entries())
            expect(from >= (rest[index - 1]?.to ?? 0n)).toBe(true);
        },
      ),
    );
  });

  test('hold the same instants in ranges that do not touch after a union', () => {
    fc.assert(
      fc.property(fc.array(range, { maxLength: 6 }), (ranges) => {
        const joined = union(ranges);
        for (const at of instants)
          expect(holds(joined, at)).toBe(holds(ranges, at));
        for (const [index, { from }] of joined.entries()) {
          expect(index === 0 || from > (joined[index - 1]?.to ?? from)).toBe(
            true,
          );
        }
      }),
    );
  });
});

const assets = [undefined, 'a', 'b'] as const;
const spec = fc.record({
  range,
  assetId: fc.constantFrom(...assets),
  open: fc.boolean(),
  hasTail: fc.boolean(),
});

/**
 * Coverage that the warehouse's constraint lets stand: no asset's instant twice, open
 * only behind closed.
 */
const coverage = fc.array(spec, { maxLength: 6 }).map((specs) => {
  const rows: Coverage[] = [];
  for (const { range: span, assetId, open, hasTail } of specs) {
    const meets = (row: Coverage): boolean =>
      overlaps(row, span) &&
      (row.assetId === undefined ||
        assetId === undefined ||
        row.assetId === assetId);
    if (rows.some(meets)) continue;
    const tail = {
      from: span.from,
      rows: 1,
      digest: '0'.repeat(64),
      rowForm: 'f',
    };
    rows.push({
      coverageId: BigInt(rows.length),
      assetId,
      ...span,
      open,
      sides: 'from',
      objectKey: undefined,
      rows: 0n,
      tail: hasTail && !open ? tail : undefined,
    });
  }
  return rows.toSorted((left, right) => Number(left.from - right.from));
});

const target = fc
  .record({
    assetId: fc.constantFrom(...assets),
    from: second,
    length: fc.option(fc.integer({ min: 1, max: 50 }), { nil: undefined }),
    closedTo: second,
  })
  .map(({ assetId, from, length, closedTo }) => ({
    assetId,
    from: BigInt(from) * SECOND,
    to: length === undefined ? undefined : BigInt(from + length) * SECOND,
    closedTo: BigInt(closedTo) * SECOND,
    now: 60n * SECOND,
  }));

function scoped(
  rows: readonly Coverage[],
  assetId: string | undefined,
): Coverage[] {
  return rows.filter(
    (row) =>
      assetId === undefined ||
      row.assetId === undefined ||
      row.assetId === assetId,
  );
}

function partsOf(plan: RequestPlan): Range[] {
  const open =
    plan.open === undefined
      ? []
      : [{ from: plan.open.from, to: plan.open.to ?? 10n ** 18n }];
  return [...plan.closed, ...open];
}

describe('planAsk', () => {
  test('plans requests that cover the target and nothing twice', () => {
    fc.assert(
      fc.property(
        target,
        coverage,
        fc.infiniteStream(fc.boolean()),
        (wanted, rows, draws) => {
          const overlapping = scoped(rows, wanted.assetId);
          const drawn = overlapping.filter(() => draws.next().value === true);
          const idsOf = (chosen: readonly Coverage[]) =>
            new Set(chosen.map(({ coverageId }) => coverageId));
          const plan = planRequest({
            ...wanted,
            coverage: overlapping,
            profile: {},
            kept: idsOf(drawn.filter(({ open }) => open)),
            audited: idsOf(drawn.filter(({ open }) => !open)),
          });
          const parts = plan === undefined ? [] : partsOf(plan);
          const superseded = new Set(
            plan?.supersedes.map((row) => row.coverageId),
          );
          const trims = plan?.trims ?? [];
          for (const { row } of trims) superseded.add(row.coverageId);
          const stays: Range[] = [
            ...overlapping.filter((row) => !superseded.has(row.coverageId)),
            ...trims.flatMap(({ keeps }) => keeps),
          ];
          for (const part of parts)
            expect(stays.filter((row) => overlaps(row, part))).toEqual([]);
          expect(union(parts).length).toBeLessThanOrEqual(parts.length);
          // Behind a clock that went back, what lies before older closed ranges waits for
          // the clock.
          const openFrom = plan?.open?.from ?? wanted.closedTo;
          const asked = instants.filter(
            (at) =>
              at >= wanted.from &&
              at < (wanted.to ?? 10n ** 18n) &&
              (at < wanted.closedTo ||
                (plan?.open !== undefined && at >= openFrom)),
          );
          expect(
            asked.filter((at) => !holds(parts, at) && !holds(stays, at)),
          ).toEqual([]);
        },
      ),
    );
  });

  test('asks for all of a superseded closed segment', () => {
    fc.assert(
      fc.property(target, coverage, (wanted, rows) => {
        const plan = planRequest({
          ...wanted,
          coverage: scoped(rows, wanted.assetId),
          profile: {},
        });
        for (const row of plan?.supersedes ?? []) {
          if (row.open) continue;
          expect(
            subtract(row, plan === undefined ? [] : partsOf(plan)),
          ).toEqual([]);
        }
      }),
    );
  });

  test('never sends an end without a start, nor to a release not known to filter correctly', () => {
    fc.assert(
      fc.property(
        target,
        coverage,
        fc.constantFrom('right', 'unproven', undefined),
        (wanted, rows, bounds) => {
          const plan = planRequest({
            ...wanted,
            coverage: scoped(rows, wanted.assetId),
            profile: { bounds },
          });
          const { from, to } = plan?.question ?? {};
          if (to === undefined) return;
          expect(from).toBeDefined();
          expect(bounds).toBe('right');
          expect(to > (plan?.closed.at(-1)?.to ?? plan?.open?.from ?? 0n)).toBe(
            true,
          );
        },
      ),
    );
  });

  test('asks again for the end of the known rows with every continuation', () => {
    fc.assert(
      fc.property(
        target,
        coverage,
        fc.constantFrom('right', 'unproven'),
        (wanted, rows, bounds) => {
          const overlapping = scoped(rows, wanted.assetId);
          const plan = planRequest({
            ...wanted,
            coverage: overlapping,
            profile: { bounds },
          });
          const first =
            plan === undefined
              ? undefined
              : (plan.closed[0]?.from ?? plan.open?.from);
          const known = overlapping.find(
            (row) =>
              !row.open &&
              row.to === first &&
              row.assetId === wanted.assetId &&
              row.tail !== undefined,
          );
          if (known?.tail === undefined) return;
          const { to, tail, sides } = known;
          expect(plan?.overlap).toEqual({
            to,
            tail,
            sides,
            isStartless: false,
          });
          expect((plan?.question.from ?? 0n) <= known.tail.from).toBe(true);
          expect(
            plan?.question.to === undefined || plan.question.to > known.to,
          ).toBe(true);
        },
      ),
    );
  });

  test('continues from the known tail', () => {
    const tail = {
      from: 5n * SECOND,
      rows: 1,
      digest: '0'.repeat(64),
      rowForm: 'f',
    };
    const from = 0n;
    const to = 10n * SECOND;
    const row = {
      coverageId: 1n,
      assetId: undefined,
      from,
      to,
      open: false,
      sides: 'from',
      objectKey: 'k',
      rows: 1n,
      tail,
    } as const;
    const plan = planRequest({
      from: 0n,
      closedTo: 20n * SECOND,
      now: 21n * SECOND,
      coverage: [row],
      profile: {},
    });
    expect(plan).toMatchObject({
      question: { from: 5n * SECOND },
      closed: [{ from: to, to: 20n * SECOND }],
      open: { from: 20n * SECOND },
      overlap: { to, tail },
    });
  });
});
