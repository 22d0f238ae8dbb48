/**
 * One loading for all who ask at once, and for those who ask while its value is fresh.
 */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { sharedLoad } from '../../src/concurrency/shared-load.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

describe('a shared value', () => {
  test('is loaded once while it is fresh', async () => {
    let loads = 0;
    const value = sharedLoad(async () => {
      loads += 1;
      return loads;
    }, 100);
    expect(await Promise.all([value(), value()])).toEqual([1, 1]);
    vi.advanceTimersByTime(100);
    expect(await value()).toBe(2);
  });

  test('is told while the next one is loaded, as long as it is usable', async () => {
    let loads = 0;
    const value = sharedLoad(
      async () => {
        loads += 1;
        return loads;
      },
      100,
      200,
    );
    expect(await value()).toBe(1);
    vi.advanceTimersByTime(150);
    expect(await value()).toBe(1);
    expect(loads).toBe(2);
    expect(await value()).toBe(2);
    vi.advanceTimersByTime(200);
    expect(await value()).toBe(3);
  });

  test('is loaded again where loading failed', async () => {
    let loads = 0;
    const value = sharedLoad(async () => {
      loads += 1;
      if (loads === 1) throw new Error('away');
      return loads;
    }, 100);
    await expect(value()).rejects.toThrow('away');
    expect(await value()).toBe(2);
  });
});
