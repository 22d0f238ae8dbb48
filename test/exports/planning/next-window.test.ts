/**
 * Requests after answers that are too large, of a release of which nothing is proven yet.
 */
import { describe, expect, test } from 'vitest';
import { DAY_MICROS, type Micros } from '../../../src/time/time.ts';
import {
  nextWindow,
  planShrunk,
} from '../../../src/exports/planning/next-window.ts';
import {
  closedRange,
  type Target,
} from '../../../src/exports/planning/remaining.ts';
import { WindowPlan } from '../../../src/exports/planning/window-plan.ts';
import type { Coverage } from '../../../src/catalog/coverage-rows.ts';
import type { SourceProfile } from '../../../src/exports/planning/profile.ts';

const NOW = 20_000n * DAY_MICROS;
const NOTHING = { bytes: 0, stretches: [], sortedTo: undefined };

function covered(from: Micros, to: Micros, coverageId: bigint): Coverage {
  return {
    coverageId,
    assetId: undefined,
    from,
    to,
    open: false,
    sides: 'both',
    objectKey: `object ${coverageId}`,
    rows: 1n,
    tail: undefined,
  };
}

/**
 * Answers that hold more rows come as one message that is too large. @returns how many
 * requests it took
 */
function requestsFor(rows: readonly Micros[], rowsMax: number): number {
  const wanted = { from: 0n, closedTo: NOW, now: NOW };
  const windows = new WindowPlan(2 ** 30);
  const coverage: Coverage[] = [];
  const published = new Set<Micros>();
  let profile: SourceProfile = {
    bounds: 'unproven',
    sides: 'both',
    header: 'thirteen columns',
  };
  for (let requests = 1; requests <= 300; requests += 1) {
    const target: Target = { ...wanted, coverage, profile };
    const next = nextWindow(target, windows);
    if (next === undefined) throw new Error('what is open is always asked for');
    // As the export's own plan does: the known entry is asked for by its second.
    if (
      next.wantsEnd &&
      profile.bounds === 'unproven' &&
      profile.known !== undefined
    ) {
      profile = { ...profile, bounds: 'right' };
      continue;
    }
    const { question, isWindow } = next.plan;
    const range = closedRange(next.plan);
    const answer = rows.filter(
      (time) =>
        time >= (question.from ?? 0n) &&
        (question.to === undefined || time < question.to),
    );
    if (answer.length > rowsMax && range !== undefined) {
      if (
        planShrunk(next, windows, NOTHING, profile.known !== undefined) ===
        undefined
      )
        throw new Error('it cannot shrink');
      windows.recordOutgrown(NOTHING, range);
      continue;
    }
    if (answer.length > 0)
      profile = {
        ...profile,
        known: { partyId: 'aa', second: answer[0] ?? 0n },
      };
    for (const { from, to } of next.plan.closed) {
      coverage.push(covered(from, to, BigInt(requests * 10 + coverage.length)));
      for (const time of answer.filter((at) => at >= from && at < to))
        published.add(time);
    }
    if (range !== undefined)
      windows.recordDone(range, answer.length, undefined);
    if (isWindow) continue;
    expect(published).toEqual(new Set(rows));
    return requests;
  }
  throw new Error('it does not end');
}

describe('a message that is too large', () => {
  test.each([
    [30, 100, 70],
    [30, 100, 10],
    [170, 400, 20],
  ])(
    'of %s days and %s rows: ever later starts, then windows, until all is there',
    (days, count, rowsMax) => {
      const step = (BigInt(days) * DAY_MICROS) / BigInt(count);
      const rows = Array.from(
        { length: count },
        (_, at) => NOW - BigInt(days) * DAY_MICROS + BigInt(at) * step,
      );
      expect(requestsFor(rows, rowsMax)).toBeLessThan(250);
    },
  );
});
