/** What a chart of a result draws, and which texts are times. */
import { describe, expect, test } from 'vitest';
import {
  readInstant,
  usualAxis,
  usualFigure,
} from '../../src/format/chart-choice.js';

const SECOND = BigInt(Date.parse('2026-11-29T05:25:51Z')) * 1_000_000n;

test.each([
  ['2026-11-29 05:25:51+00', SECOND],
  ['2026-11-29 05:25:51', SECOND],
  ['2026-11-29T05:25:51Z', SECOND],
  ['2026-11-29 05:25:51.123456+00', SECOND + 123_456_000n],
  ['2026-11-29 05:25:51.5+00', SECOND + 500_000_000n],
  ['2026-11-29 05:25:51.123456789', SECOND + 123_456_789n],
  ['2026-11-29T05:25:51.000001Z', SECOND + 1_000n],
  ['2026-11-29 10:55:51+05:30', SECOND],
  ['2026-11-29 01:55:51-03:30', SECOND],
  ['2026-11-29 05:25+00', SECOND - 51_000_000_000n],
  ['1969-12-31 23:59:59.999999+00', -1_000n],
  ['2026-11-29', BigInt(Date.parse('2026-11-29')) * 1_000_000n],
  ['2026-11', BigInt(Date.parse('2026-11-01')) * 1_000_000n],
])('readInstant reads %s exactly', (text, nanos) => {
  expect(readInstant(text)).toBe(nanos);
});

test.each([
  'infinity',
  '-infinity',
  '',
  '2026-02-30',
  '2026-13',
  '2026-11-29 and more',
  '2026-11-29 25:00:00+00',
  '0044-03-15 (BC)',
])('readInstant does not take %s for a time', (text) => {
  expect(readInstant(text)).toBeUndefined();
});

describe('usualAxis', () => {
  const at = (day: number) => `2026-11-${day} 05:25:51.5+00`;
  const party = { name: 'party_id', index: 0, kind: 'text' } as const;
  const time = (name: string) => ({ name, index: 1, kind: 'time' }) as const;
  const unordered = [
    ['a', at(12)],
    ['b', at(29)],
    ['c', at(11)],
  ];
  const ordered = unordered.toSorted((a, b) => (a[1]! < b[1]! ? -1 : 1));

  test.each(['latest', 'first_at', 'last_at', 'as_of', 'max(vega_time)'])(
    'takes the name and not %s, which describes it',
    (name) => {
      expect(usualAxis([party, time(name)], ordered)).toBe(party);
    },
  );

  test('takes the name if it identifies the rows and they are not in order of time', () => {
    expect(usualAxis([party, time('seen')], unordered)).toBe(party);
  });

  test('takes the time of a series', () => {
    const axis = time('vega_time');
    expect(usualAxis([party, axis], ordered)).toBe(axis);
    const repeated = [...unordered, ...unordered];
    expect(usualAxis([party, axis], repeated)).toBe(axis);
  });

  test('takes a time that describes a row only if there is no name', () => {
    const axis = time('latest');
    expect(usualAxis([axis], unordered)).toBe(axis);
    expect(usualAxis([], unordered)).toBeUndefined();
  });

  test('prefers a name with several values', () => {
    const kind = { name: 'kind', index: 1, kind: 'text' } as const;
    const rows = [
      ['a', 'x'],
      ['a', 'y'],
    ];
    expect(usualAxis([party, kind], rows)).toBe(kind);
  });
});

test('usualFigure prefers an amount to a count', () => {
  expect(usualFigure(['entries', 'quantity'])).toBe('quantity');
  expect(usualFigure(['entries', 'payers'])).toBe('entries');
  expect(usualFigure([])).toBeUndefined();
});
