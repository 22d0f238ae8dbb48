import { describe, expect, test } from 'vitest';
import { readdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import { QUICK_PLAN } from '../../bench/world/quick-plan.ts';
import { atLeast, atMost, between } from '../../bench/world/report.ts';
import {
  type Ended,
  formatSummary,
  isEverythingMet,
  SHORT_CODE,
} from '../../bench/world/summary.ts';

const MET = { what: 'rows', measured: '12', wanted: 'at least 9', isMet: true };
const MISSED = { ...MET, measured: '8', isMet: false };
const GOOD: Ended = {
  bench: 'lists',
  figures: [MET],
  code: 0,
  isOverdue: false,
  seconds: 60,
};
const SHORT: Ended = { ...GOOD, figures: [MET, MISSED], code: SHORT_CODE };

function verdictsOf(all: readonly Ended[]): (string | undefined)[] {
  const rows = formatSummary(all).split('\n').slice(2);
  return rows
    .filter((row) => row.startsWith('|'))
    .map((row) => row.split(' | ').at(-1)?.replace(' |', ''));
}

describe('the summary of several benchmarks', () => {
  test('formatSummary prints one row for each figure, with its verdict', () => {
    expect(formatSummary([GOOD, { ...SHORT, bench: 'load' }])).toBe(
      [
        '| bench | what | measured | wanted | verdict |',
        '| --- | --- | --- | --- | --- |',
        '| lists | rows | 12 | at least 9 | ok |',
        '| load | rows | 12 | at least 9 | ok |',
        '| load | rows | 8 | at least 9 | **short** |',
        '',
        '1 of 3 figures fall short, 0 of 2 benchmarks did not end well; it took 2.0 minutes.',
        '',
      ].join('\n'),
    );
  });

  test('formatSummary escapes a vertical line within a cell', () => {
    const figures = [{ ...MET, what: 'curl | zstd' }];
    expect(formatSummary([{ ...GOOD, figures }])).toContain(
      String.raw`| curl \| zstd |`,
    );
  });

  test('isEverythingMet is true only if no figure falls short', () => {
    expect(isEverythingMet([GOOD, GOOD])).toBe(true);
    expect(isEverythingMet([GOOD, SHORT])).toBe(false);
  });

  test.each([
    ['crashes', { code: 1 }, 'crashed with code 1'],
    [
      'crashes after a missed target',
      { figures: [MISSED], code: 1 },
      'crashed',
    ],
    ['is killed', { code: undefined }, 'ended by a signal'],
    ['does not end', { code: undefined, isOverdue: true }, 'no end'],
    ['is short without a figure', { code: SHORT_CODE }, 'short of a target'],
  ] as const)(
    'a benchmark that %s is a row of the table and fails the whole',
    (_, how, shown) => {
      const all = [{ ...GOOD, ...how }, GOOD];
      expect(isEverythingMet(all)).toBe(false);
      expect(formatSummary(all)).toContain(`| the benchmark itself | ${shown}`);
      expect(verdictsOf(all).slice(-2)).toEqual(['**short**', 'ok']);
    },
  );

  test('a number that could not be measured misses every target', () => {
    const targets = [atLeast(0.5), atMost(0.5), between(0, 1)];
    expect(targets.map(({ isMet }) => isMet(Number.NaN))).toEqual(
      targets.map(() => false),
    );
  });
});

test('each benchmark of the quick plan exists, and is planned once', async () => {
  const files = await readdir(resolve(import.meta.dirname, '../../bench'));
  const planned = QUICK_PLAN.map(({ bench }) => `${bench}.ts`);
  expect(files).toEqual(expect.arrayContaining(planned));
  expect(new Set(planned).size).toBe(planned.length);
});
