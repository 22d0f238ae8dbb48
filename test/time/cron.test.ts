/** Which texts are cron patterns, and which days and times they name. */
import { describe, expect, test } from 'vitest';
import { parseCron } from '../../src/time/cron.ts';

const HOUR_MS = 3_600_000;

describe('parseCron', () => {
  test.each([
    ['four fields', '0 2 * *'],
    ['one field', '2'],
    ['seven fields', '0 0 2 * * * *'],
    ['a hashed minute', 'H 12 * * *'],
    ['nothing', ''],
    ['an empty part of a list', '0,,5 2 * * *'],
    ['a minute of 60', '60 2 * * *'],
    ['an hour of 24', '0 24 * * *'],
    ['a day 0', '0 2 0 * *'],
    ['a month 13', '0 2 * 13 *'],
    ['a weekday 8', '0 2 * * 8'],
    ['a range that runs backwards', '0 5-2 * * *'],
    ['a step of 0', '*/0 * * * *'],
    ['a negative minute', '-5 2 * * *'],
    ['a fraction', '1.5 2 * * *'],
    ['a question mark for hours', '0 ? * * *'],
    ['an unknown name', '0 2 * FOO *'],
    ['a day that never comes', '0 2 30 2 *'],
    ['a 31st of short months', '0 2 31 4,6,9,11 *'],
    ['an unknown alias', '@nightly'],
  ])('refuses %s', (_name, text) => {
    expect(parseCron(text)).toBe(undefined);
  });

  test.each([
    ['five fields', '0 2 * * *', [2 * HOUR_MS]],
    ['six fields, the second first', '30 0 2 * * *', [2 * HOUR_MS + 30_000]],
    [
      'a list and a step',
      '0,30 */12 * * *',
      [0, 0.5, 12, 12.5].map((h) => h * HOUR_MS),
    ],
    [
      'a range with a step',
      '0 8-12/2 * * *',
      [8, 10, 12].map((h) => h * HOUR_MS),
    ],
    [
      'an open range with a step',
      '0 20/2 * * *',
      [20, 22].map((h) => h * HOUR_MS),
    ],
    ['an alias', '@daily', [0]],
    ['wide spaces', '  0   2 * *  * ', [2 * HOUR_MS]],
  ])('reads the times of %s', (_name, text, timesOfDay) => {
    expect(parseCron(text)?.timesOfDay).toEqual(timesOfDay);
  });

  test.each([
    ['0 2 * * 7', '2026-11-22', true],
    ['0 2 * * sun', '2026-11-22', true],
    ['0 2 * * MON-FRI', '2026-11-22', false],
    ['0 2 * feb *', '2026-02-10', true],
    ['0 2 29 2 *', '2028-02-29', true],
    ['0 2 L * *', '2026-02-28', true],
    ['0 2 L * *', '2028-02-28', false],
    ['0 2 1 * MON', '2026-11-23', true],
    ['0 2 1 * MON', '2026-12-01', true],
    ['0 2 1 * MON', '2026-12-02', false],
    ['0 2 ? * MON', '2026-12-01', false],
  ])('%s on %s: %s', (text, day, isMatched) => {
    const [year = 0, month = 0, date = 0] = day.split('-').map(Number);
    expect(parseCron(text)?.matchesDay(year, month, date)).toBe(isMatched);
  });
});
