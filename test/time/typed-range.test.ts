import { expect, test } from 'vitest';
import { readInstant } from '../../src/time/time.ts';
import { readTypedRange } from '../../src/time/typed-range.ts';

const NOW = readInstant('2026-03-04T10:20:30Z');
const NAMES = { start: '--from', end: '--to' };

test('a month as an end is its first instant, which is exclusive', () => {
  expect(
    readTypedRange({ start: '2026-01', end: '2026-03' }, NAMES, NOW),
  ).toEqual({
    start: readInstant('2026-01-01'),
    end: readInstant('2026-03-01'),
    problems: [],
  });
});

test('a month that is over has an end, the present one has none', () => {
  const of = (month: string) => readTypedRange({ month }, NAMES, NOW);
  expect(of('2026-02')).toEqual({
    start: readInstant('2026-02-01'),
    end: readInstant('2026-03-01'),
    problems: [],
  });
  expect(of('2026-03')).toEqual({
    start: readInstant('2026-03-01'),
    end: undefined,
    problems: [],
  });
});

test('every problem of a range is named with its option', () => {
  const problems = (given: Parameters<typeof readTypedRange>[0]) =>
    readTypedRange(given, NAMES, NOW).problems;
  expect(problems({ start: '20.11.2026', end: '-3m' })).toEqual([
    expect.stringContaining('--from: "20.11.2026" is not a time'),
    expect.stringContaining('--to: "-3m" is not a time'),
  ]);
  expect(problems({ start: 'today', end: 'yesterday' })).toEqual([
    '--from, --to: 2026-03-04T00:00:00.000000Z is not before ' +
      '2026-03-03T00:00:00.000000Z; give a range that is not empty',
  ]);
  expect(problems({ month: '2026-02', end: 'now' })).toEqual([
    '--month: is a whole range already; leave out --from and --to, or --month',
  ]);
  expect(problems({ month: 'March' })).toEqual([
    '--month: "March" is not a month; give a month such as 2026-03',
  ]);
  expect(problems({ month: '2026-04' })).toEqual([
    '--month: 2026-04 has not begun; give a month that has',
  ]);
});
