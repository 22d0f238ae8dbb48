/** How old an answer is by its headers. */
import { expect, test } from 'vitest';
import { readAnswerHead } from '../../../src/source/wire/answer-headers.ts';

test.each([
  ['60', 60_000_000n],
  [' 7200 ', 7_200_000_000n],
  ['7200, 30', 7_200_000_000n],
  ['2147483648', 2_147_483_648_000_000n],
  ['-5', undefined],
  ['1.5', undefined],
  ['soon', undefined],
  ['', undefined],
  [undefined, undefined],
])('an Age of %j without a Date is %s microseconds', (age, expected) => {
  const head = readAnswerHead(age === undefined ? {} : { age });
  expect(head.ageMicros).toBe(expected);
  expect(head.producedAt).toBeUndefined();
});

test('a Date counts from the time when a cache took the answer', () => {
  const date = 'Tue, 02 May 2023 00:00:00 GMT';
  const made = BigInt(Date.parse(date) - 3_600_000) * 1000n;
  expect(readAnswerHead({ date, age: '3600' }).producedAt).toBe(made);
});
