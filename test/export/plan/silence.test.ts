import { expect, test } from 'vitest';
import { DAY_MICROS, SECOND_MICROS } from '../../../src/core/time.ts';
import type { Range } from '../../../src/export/plan/ranges.ts';
import { Silence } from '../../../src/export/plan/silence.ts';
import { secondOf } from '../../../src/export/validate/tail.ts';

const NIGHT: Range = { from: 0n, to: 40n * SECOND_MICROS };

function shortened(range: Range, silence: Silence): Range {
  const cut = silence.cut(range);
  return cut === undefined ? range : { ...range, to: BigInt(cut) * SECOND_MICROS };
}

test('a range is asked for twice, halved twice, and then given up', () => {
  const silence = new Silence();
  const asked: number[] = [];
  let mayHelp = true;
  while (mayHelp) {
    const range = shortened(NIGHT, silence);
    asked.push(secondOf(range.to));
    mayHelp = silence.met(range);
  }
  expect(asked).toEqual([40, 40, 20, 10]);
  // As the next night finds it: with one question it is known whether that has changed.
  const later = new Silence(JSON.parse(JSON.stringify(silence.state)) as Silence['state']);
  expect(secondOf(shortened(NIGHT, later).to)).toBe(10);
  expect(later.met(shortened(NIGHT, later))).toBe(false);
});

test('an answer starts the count again, and what is left is asked for in parts as short', () => {
  const silence = new Silence();
  silence.met(NIGHT);
  silence.met(NIGHT);
  silence.broken();
  const rest = { from: 20n * SECOND_MICROS, to: NIGHT.to };
  expect(silence.cut(rest)).toBeUndefined();
  expect(silence.cut(NIGHT)).toBe(20);
  expect([silence.met(rest), silence.met(rest)]).toEqual([true, true]);
  expect(silence.cut(rest)).toBe(30);
});

test('of all times, it is the last half year that is halved', () => {
  const silence = new Silence();
  const to = 20_000n * DAY_MICROS;
  silence.met({ from: 0n, to });
  silence.met({ from: 0n, to });
  expect(silence.cut({ from: 0n, to })).toBe(secondOf(to - 90n * DAY_MICROS));
});

test('where a range cannot be asked for in parts, nothing is given up', () => {
  const silence = new Silence();
  for (let time = 0; time < 10; time += 1) expect(silence.met(NIGHT)).toBe(true);
});
