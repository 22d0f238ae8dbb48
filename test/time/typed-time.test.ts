/** Times as people type them, at a fixed present: Wednesday, 4 March 2026. */
import { describe, expect, test } from 'vitest';
import { formatInstant, readInstant } from '../../src/time/time.ts';
import { readTypedMonth, readTypedTime } from '../../src/time/typed-time.ts';

const NOW = readInstant('2026-03-04T10:20:30.400000Z');

function span(text: string): readonly string[] | undefined {
  const found = readTypedTime(text, NOW);
  return found && [formatInstant(found.from), formatInstant(found.to)];
}

describe('a typed time', () => {
  test.each([
    ['2026', '2026-01-01T00:00:00', '2027-01-01T00:00:00'],
    ['2026-03', '2026-03-01T00:00:00', '2026-04-01T00:00:00'],
    ['2025-12', '2025-12-01T00:00:00', '2026-01-01T00:00:00'],
    ['2024-02-29', '2024-02-29T00:00:00', '2024-03-01T00:00:00'],
    ['today', '2026-03-04T00:00:00', '2026-03-05T00:00:00'],
    ['Yesterday', '2026-03-03T00:00:00', '2026-03-04T00:00:00'],
    [' 2026-03-01 ', '2026-03-01T00:00:00', '2026-03-02T00:00:00'],
  ])('%j is a span of days in UTC', (text, from, to) => {
    expect(span(text)).toEqual([`${from}.000000Z`, `${to}.000000Z`]);
  });

  test.each([
    ['now', '2026-03-04T10:20:30.400000Z'],
    ['-90min', '2026-03-04T08:50:30.400000Z'],
    ['-36h', '2026-03-02T22:20:30.400000Z'],
    ['-30d', '2026-02-02T10:20:30.400000Z'],
    ['-2w', '2026-02-18T10:20:30.400000Z'],
    ['2026-10-01 00:00', '2026-10-01T00:00:00.000000Z'],
    ['2026-10-01T07:08:09.5', '2026-10-01T07:08:09.500000Z'],
    ['2026-10-01T07:08Z', '2026-10-01T07:08:00.000000Z'],
    ['2026-10-01 07:08+02:00', '2026-10-01T05:08:00.000000Z'],
    ['2026-10-01T07:08:09+02:00', '2026-10-01T05:08:09.000000Z'],
  ])('%j is one instant; without a zone it is UTC', (text, instant) => {
    expect(span(text)).toEqual([instant, instant]);
  });

  test.each([
    '20.11.2026',
    '03/04/2026',
    '2026-3',
    '2026-13',
    '2026-02-30',
    '2026-02-30 10:00',
    '-3m',
    '30d',
    '-d',
    '-9999999999d',
    '1772619630',
    '26',
    'tomorrow-ish',
    '',
  ])('%j is refused, because it has no meaning or more than one', (text) => {
    expect(span(text)).toBeUndefined();
  });
});

describe('a typed month', () => {
  test.each(['2026-03', '2025-12'])('%s is that month', (text) => {
    expect(readTypedMonth(text)?.from).toBe(readInstant(`${text}-01`));
  });

  test.each(['2026', '2026-03-01', '2026-00', 'March', '03-2026'])(
    '%j is not one',
    (text) => {
      expect(readTypedMonth(text)).toBeUndefined();
    },
  );
});
