import { expect, test } from 'vitest';
import { DAY_MICROS, SECOND_MICROS } from '../../../src/core/time.ts';
import { type Range, secondOf } from '../../../src/export/plan/ranges.ts';
import { countSilence, latestEnd, type Silence } from '../../../src/export/plan/silence.ts';

const LONG: Range = { from: 0n, to: 40n * DAY_MICROS };
const DAY = secondOf(DAY_MICROS);
const NONE: Silence = { times: 0 };

function shorten(range: Range, silence: Silence): Range {
  const end = latestEnd(silence, range);
  return end < secondOf(range.to) ? { ...range, to: BigInt(end) * SECOND_MICROS } : range;
}

function count(silence: Silence, range: Range): Silence {
  const counted = countSilence(silence, range);
  if (counted === undefined) throw new Error('given up');
  return counted;
}

test('a range is asked for twice, halved twice, and then given up', () => {
  let silence = NONE;
  const asked: number[] = [];
  for (let next: Silence | undefined = silence; next !== undefined;) {
    silence = next;
    const range = shorten(LONG, silence);
    asked.push(secondOf(range.to) / DAY);
    next = countSilence(silence, range);
  }
  expect(asked).toEqual([40, 40, 20, 10]);
  // As the next night finds it: with one question it is known whether that has changed.
  expect(countSilence(silence, shorten(LONG, silence))).toBeUndefined();
});

test('an answer starts the count again, and what is left is asked for in parts as short', () => {
  const answered = { ...count(count(NONE, LONG), LONG), times: 0 };
  const rest = { from: 20n * DAY_MICROS, to: LONG.to };
  expect(latestEnd(answered, rest)).toBe(40 * DAY);
  expect(latestEnd(answered, LONG)).toBe(20 * DAY);
  expect(latestEnd(count(count(answered, rest), rest), rest)).toBe(30 * DAY);
});

test('of all times, it is the last half year that is halved', () => {
  const ever = { from: 0n, to: 20_000n * DAY_MICROS };
  expect(latestEnd(count(count(NONE, ever), ever), ever)).toBe(secondOf(ever.to - 90n * DAY_MICROS));
});

test('where a range cannot be asked for in parts, nothing is given up', () => {
  let silence = NONE;
  for (let time = 0; time < 10; time += 1) silence = count(silence, LONG);
  expect(silence.secondsMax).toBe(20 * DAY);
});

test('a range of less than a day says nothing about the windows of the rest, and is given up all the same', () => {
  const short = { from: 0n, to: 41n * SECOND_MICROS };
  const counted = count(count(count(NONE, short), short), short);
  expect(counted.secondsMax).toBeUndefined();
  expect(countSilence(counted, short)).toBeUndefined();
});
