// @ts-expect-error -- the page's scripts have no types
import { duration } from '../../../src/api/console/page/common/format.js';
import { fc } from '../../support/properties.ts';
import { describe, expect, test } from 'vitest';
import {
  formatAge,
  formatBytes,
  formatCount,
  formatDuration,
  formatQuantity,
  printable,
  truncate,
} from '../../../src/cli/output/format.ts';

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
])('%s ms are %s, on the command line and in the console', (ms, text) => {
  expect([formatDuration(ms), duration(ms)]).toEqual([text, text]);
});

test('formatAge tells times before and after now', () => {
  expect(formatAge(0, 185_000)).toBe('3 min 5 s ago');
  expect(formatAge(60_000, 0)).toBe('in 1 min');
  expect(formatAge(5, 5)).toBe('just now');
});

test('amounts of bytes are scaled and amounts of rows are counted', () => {
  expect(formatQuantity(2048, 'bytes')).toBe('2.0 KiB');
  expect(formatQuantity(2048n, 'rows')).toBe('2,048 rows');
});

test('printable text cannot steer the terminal', () => {
  expect(printable('a\u001B[2Jb\nc\u202Ed')).toBe('a·[2Jb·c·d');
  expect(printable('ünïcode ok')).toBe('ünïcode ok');
});

test('truncate keeps text within the width', () => {
  fc.assert(
    fc.property(
      fc.string(),
      fc.nat(20),
      (text, width) => truncate(text, width).length <= width,
    ),
  );
  expect(truncate('abcdef', 4)).toBe('abc…');
  expect(truncate('abcd', 4)).toBe('abcd');
});
