import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import {
  exportLine,
  ProgressHints,
  type ProgressLine,
} from '../../src/runs/progress.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const line = (done: number): readonly ProgressLine[] => [
  { label: 'sync', done: String(done), unit: 'rows' },
];

function kept(): { hints: ProgressHints; written: unknown[] } {
  const written: unknown[] = [];
  const stored = new Map<string, unknown>();
  const hints = new ProgressHints({
    get: async (key) => stored.get(key),
    set: async (key, value) => {
      written.push(value);
      stored.set(key, value);
    },
  });
  return { hints, written };
}

test('writes the newest report a few times a second, and never loses the last', async () => {
  const { hints, written } = kept();
  for (let done = 1; done <= 100; done += 1) hints.report('run', line(done));
  await vi.advanceTimersByTimeAsync(1_000);
  expect(written).toEqual([line(100)]);
  expect(await hints.read('run')).toEqual(line(100));
  expect(await hints.read('other')).toEqual([]);
});

test('writes what waits before a run is over, and nothing once it is closed', async () => {
  const { hints, written } = kept();
  hints.report('run', line(1));
  hints.report('run', line(2));
  await hints.settle('run');
  await hints.settle('run');
  expect(written).toEqual([line(2)]);
  expect(await hints.read('run')).toEqual(line(2));
  hints.report('run', line(3));
  hints[Symbol.dispose]();
  hints.report('run', line(4));
  await hints.settle('run');
  await vi.advanceTimersByTimeAsync(1_000);
  expect(written).toEqual([line(2)]);
});

test('reads nothing where another version has written something else', async () => {
  for (const stored of [
    'lines',
    [null],
    [{ label: 'sync', done: 1, unit: 'rows' }],
  ]) {
    const hints = new ProgressHints({
      get: async () => stored,
      set: async () => undefined,
    });
    expect(await hints.read('run')).toEqual([]);
  }
});

test('exportLine makes no formatter of its own: it is called for each chunk', () => {
  const made = vi.spyOn(Intl, 'NumberFormat');
  const progress = { partyId: 'ab', bytes: 1, rows: 20_224, segments: 1 };
  const { note } = exportLine(progress);
  expect(note).toBe('20,224 rows, 1 segment, party ab');
  expect(made).not.toHaveBeenCalled();
  made.mockRestore();
});
