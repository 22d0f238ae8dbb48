import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { ProgressLine } from '../../jobs/job.ts';
import { ProgressHints } from '../../jobs/progress-hints.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const line = (done: number): readonly ProgressLine[] => [{ label: 'walk', done: String(done), unit: 'rows' }];

it('writes the first report at once, the newest a few times a second, and never loses the last', async () => {
  const written: unknown[] = [];
  const stored = new Map<string, unknown>();
  const hints = new ProgressHints({
    get: async (key) => stored.get(key),
    set: async (key, value) => {
      written.push(value);
      stored.set(key, value);
    },
  });
  for (let done = 1; done <= 100; done += 1) hints.report('run', line(done));
  expect(written).toEqual([line(1)]);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(written).toEqual([line(1), line(100)]);
  expect(await hints.read('run')).toEqual(line(100));
  expect(await hints.read('other')).toEqual([]);
});
