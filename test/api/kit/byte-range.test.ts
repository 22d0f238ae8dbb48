/** Which bytes a request asks for, and what an hour's budget lets go. */
import { describe, expect, test } from 'vitest';
import { ByteBudget } from '../../../src/api/kit/byte-budget.ts';
import { readByteRange } from '../../../src/api/kit/byte-range.ts';

const TAG = '"a"';
const SIZE = 100n;

describe('readByteRange', () => {
  test.each([
    ['bytes=0-', [0n, 100n]],
    ['bytes=40-', [40n, 100n]],
    ['bytes=40-59', [40n, 60n]],
    ['bytes=99-500', [99n, 100n]],
    ['bytes=-30', [70n, 100n]],
    ['bytes=-300', [0n, 100n]],
  ])('reads %s', (range, [start, end]) => {
    expect(readByteRange({ range }, SIZE, TAG)).toEqual({ start, end });
  });

  test.each([
    undefined,
    '',
    'bytes=',
    'bytes=-',
    'bytes=9-3',
    'bytes=0-1,5-6',
    'rows=0-1',
    'bytes=a-b',
  ])('takes %s for the whole file', (range) => {
    expect(readByteRange({ range }, SIZE, TAG)).toBe('whole');
  });

  test.each(['bytes=100-', 'bytes=5000-6000', 'bytes=-0'])(
    'finds no byte in %s',
    (range) => {
      expect(readByteRange({ range }, SIZE, TAG)).toBe('none');
    },
  );

  test('takes the whole file if the client has a part of another one', () => {
    const range = 'bytes=40-';
    const other = { range, 'if-range': '"b"' };
    expect(readByteRange(other, SIZE, TAG)).toBe('whole');
    const weak = { range, 'if-range': `W/${TAG}` };
    expect(readByteRange(weak, SIZE, TAG)).toBe('whole');
    const same = { range, 'if-range': TAG };
    expect(readByteRange(same, SIZE, TAG)).toEqual({ start: 40n, end: 100n });
  });
});

describe('a ByteBudget', () => {
  test('refuses what would exceed the hour, fills evenly, and takes back what was not sent', () => {
    let nowMs = 0;
    const budget = new ByteBudget(3_600, () => nowMs);
    expect(budget.take(3_000)).toBe(0);
    expect(budget.take(700)).toBe(100);
    expect(budget.take(600)).toBe(0);
    expect(budget.take(60)).toBe(60);
    nowMs = 60_000;
    expect(budget.take(60)).toBe(0);
    expect(budget.take(1)).toBe(1);
    budget.giveBack(500);
    expect(budget.take(500)).toBe(0);
  });

  test('never holds more than an hour', () => {
    let nowMs = 0;
    const budget = new ByteBudget(3_600, () => nowMs);
    nowMs = 10 * 3_600_000;
    budget.giveBack(9_000);
    expect(budget.take(3_600)).toBe(0);
    expect(budget.take(1)).toBe(1);
  });

  test('lets a file that is larger than the hour go while nothing is taken, and nothing after it', () => {
    let nowMs = 0;
    const budget = new ByteBudget(3_600, () => nowMs);
    expect(budget.take(7_200)).toBe(0);
    expect(budget.take(1)).toBe(3_601);
    nowMs = 3_601_000;
    expect(budget.take(1)).toBe(0);
  });
});
