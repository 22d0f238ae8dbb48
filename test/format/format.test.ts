import { describe, expect, test } from 'vitest';
import {
  formatAge,
  formatBytes,
  formatCount,
  formatDuration,
  formatPlural,
  formatQuantity,
  formatRough,
  formatShare,
  formatTime,
  formatTimeUtc,
  groupDigits,
} from '../../src/format/format.js';
import { fc } from '../support/properties.ts';

describe('formatRough', () => {
  test.each([
    [0, '0'],
    [-0, '0'],
    [999, '999'],
    [0.30000000000000004, '0.3'],
    [0.0025, '0.0025'],
    [1_000, '1 k'],
    [-1_234_567, '-1.23 M'],
    [999_999, '1 M'],
    [5e9, '5 G'],
    [2e14, '200 T'],
    [1e15, '1 P'],
    [2.5e20, '250 E'],
    [2e23, '200 Z'],
    [1e24, '1 Y'],
    [9.99e26, '999 Y'],
    [1e27, '1 × 10²⁷'],
    [-2.5e33, '-2.5 × 10³³'],
    [5e-12, '5 × 10⁻¹²'],
  ])('%s → %s', (value, text) =>
    expect(formatRough(value).replaceAll('\u202F', ' ')).toBe(text),
  );

  test('never writes the notation of programs', () => {
    fc.assert(
      fc.property(
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        (value) => {
          expect(formatRough(value)).not.toMatch(/\de/i);
        },
      ),
    );
  });
});

describe('formatCount', () => {
  test.each([
    [0n, '0'],
    [999n, '999'],
    [1000n, '1,000'],
    [-1234567n, '-1,234,567'],
    [12_345_678_901_234_567_890n, '12,345,678,901,234,567,890'],
  ])('%s → %s', (count, text) => expect(formatCount(count)).toBe(text));

  test('loses no digit', () => {
    fc.assert(
      fc.property(fc.bigInt(), (count) => {
        expect(BigInt(formatCount(count).replaceAll(',', ''))).toBe(count);
      }),
    );
  });
});

test.each([
  [0n, '0 B'],
  [1023n, '1,023 B'],
  [1536n, '1.5 KiB'],
  [256n * 2n ** 20n, '256.0 MiB'],
  [2n ** 70n, '1,048,576.0 PiB'],
])('formatBytes(%s) is %s', (bytes, text) =>
  expect(formatBytes(bytes)).toBe(text),
);

test.each([
  [-5, '0 ms'],
  [0, '0 ms'],
  [48, '48 ms'],
  [21_639, '21 s'],
  [999, '999 ms'],
  [1000, '1.0 s'],
  [9_999, '9.9 s'],
  [59_999, '59 s'],
  [60_000, '1 min'],
  [185_000, '3 min 5 s'],
  [3_725_000, '1 h 2 min'],
  [90_000_000, '1 d 1 h'],
  [86_400_000 * 1234, '1,234 d'],
])('formatDuration(%s) is %s', (ms, text) =>
  expect(formatDuration(ms)).toBe(text),
);

test('formatAge tells times before and after now', () => {
  expect(formatAge(0, 185_000)).toBe('3 min 5 s ago');
  expect(formatAge(60_000, 0)).toBe('in 1 min');
  expect(formatAge(5, 5)).toBe('just now');
});

test('amounts of bytes are scaled and amounts of rows are counted', () => {
  expect(formatQuantity(2048, 'bytes')).toBe('2.0 KiB');
  expect(formatQuantity(2048n, 'rows')).toBe('2,048 rows');
});

test('formatShare says how much of a total is done', () => {
  expect(formatShare(103, 1134, 'parties')).toBe('103 of 1,134 parties');
  expect(formatShare('1024', '2048', 'bytes', ' / ')).toBe('1.0 KiB / 2.0 KiB');
});

test.each([
  [1, '1 party'],
  ['1', '1 party'],
  [0n, '0 parties'],
  ['12345', '12,345 parties'],
])('formatPlural(%s) is %s', (count, text) =>
  expect(formatPlural(count, 'party', 'parties')).toBe(text),
);

test.each([
  ['-1234.5678', '-1,234.5678'],
  ['123456', '123,456'],
  ['1234e5', '1,234e5'],
  ['no number', 'no number'],
  ['', ''],
])('groupDigits of %s is %s', (text, grouped) =>
  expect(groupDigits(text)).toBe(grouped),
);

test('groupDigits groups whole numbers of any length as Intl does', () => {
  fc.assert(
    fc.property(fc.bigInt(), (value) => {
      expect(groupDigits(String(value))).toBe(value.toLocaleString('en-US'));
    }),
  );
});

test('times have one form, with the zone where no heading names it', () => {
  const instant = '2026-03-01T12:34:56.789012Z';
  expect(formatTime(instant)).toBe('2026-03-01 12:34:56');
  expect(formatTime(instant, 'minute')).toBe('2026-03-01 12:34');
  expect(formatTime(instant, 'day')).toBe('2026-03-01');
  expect(formatTimeUtc(instant)).toBe('2026-03-01 12:34:56 UTC');
  expect(formatTimeUtc(instant, 'minute')).toBe('2026-03-01 12:34 UTC');
});
