/** How long the keeper waits before it starts a server again that ended by itself. */
import { expect, test } from 'vitest';
import { restartWaitMs } from '../../src/embedded/keeper.ts';

const NOW_MS = Date.UTC(2026, 0, 2);

test('restartWaitMs is 0 for the first restart in ten minutes', () => {
  expect(restartWaitMs([], NOW_MS)).toBe(0);
  expect(restartWaitMs([NOW_MS - 600_000], NOW_MS)).toBe(0);
});

test('restartWaitMs doubles with each restart of the last ten minutes', () => {
  const waits: number[] = [];
  const restartsMs: number[] = [];
  for (let restart = 0; restart < 4; restart += 1) {
    restartsMs.push(NOW_MS);
    waits.push(restartWaitMs(restartsMs, NOW_MS));
  }
  expect(waits).toEqual([2_000, 4_000, 8_000, 16_000]);
});

test('restartWaitMs lets five restarts happen in ten minutes', () => {
  const firstMs = NOW_MS - 100_000;
  const restartsMs = [
    firstMs,
    ...[80, 60, 40, 20].map((ago) => NOW_MS - ago * 1_000),
  ];
  expect(restartWaitMs(restartsMs, NOW_MS)).toBe(500_000);
  expect(restartWaitMs(restartsMs, firstMs + 600_000)).toBe(0);
});

test('restartWaitMs ignores restarts that a clock put into the future', () => {
  expect(restartWaitMs([NOW_MS + 3_600_000], NOW_MS)).toBe(0);
});
