import { describe, expect, test } from 'vitest';
import {
  inBackground,
  isSlow,
  watchSource,
} from '../../../src/runs/nightly/nightly-exports.ts';

const QUICK = { lastMs: 30, medianMs: 25 };
const SLOW = { lastMs: 1_500, medianMs: 25 };

test.each([
  [900, 20, false],
  [1_100, 20, true],
  [4_000, 800, false],
  [5_001, 4_000, true],
])(
  'an answer of %i ms where %i ms are usual: slow is %s',
  (lastMs, medianMs, expected) => {
    expect(isSlow({ lastMs, medianMs })).toBe(expected);
  },
);

describe('the watch on the source’s latency', () => {
  async function answers(...latencies: (typeof QUICK)[]): Promise<boolean[]> {
    const left = [...latencies];
    const isUnwell = watchSource(async () => left.shift() ?? QUICK, 0);
    const said: boolean[] = [];
    while (left.length > 0) said.push((await isUnwell()) !== undefined);
    return said;
  }

  test('believes three slow answers in a row', async () => {
    expect(await answers(SLOW, SLOW, SLOW)).toEqual([false, false, true]);
  });

  test('takes fewer slow answers for a passing delay', async () => {
    expect(await answers(SLOW, SLOW, QUICK, SLOW, SLOW, QUICK)).not.toContain(
      true,
    );
  });

  test('checks only from time to time', async () => {
    let asked = 0;
    const latency = async () => {
      asked += 1;
      return SLOW;
    };
    await watchSource(latency, 3_600_000)();
    expect(asked).toBe(0);
  });
});

test('inBackground waits for no answer, and returns each of them once', async () => {
  const answers = [
    Promise.withResolvers<string>(),
    Promise.withResolvers<string>(),
  ];
  let asked = 0;
  const look = inBackground(async () => {
    asked += 1;
    return answers[asked - 1]?.promise;
  });

  expect([look(), look(), asked]).toEqual([undefined, undefined, 1]);
  answers[0]?.resolve('slow');
  await expect.poll(look).toBe('slow');
  expect([look(), asked]).toEqual([undefined, 2]);
});
