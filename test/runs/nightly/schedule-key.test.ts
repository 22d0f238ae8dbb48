/** The stored keys of scheduled runs, and what they mean. */
import { expect, test } from 'vitest';
import {
  FIRST_RUN_KEY,
  formatScheduleKey,
  parseScheduleKey,
  type ScheduleKey,
} from '../../../src/runs/nightly/schedule-key.ts';

const DUE_MS = Date.UTC(2026, 0, 2, 3);
const KEYS: readonly (readonly [string, ScheduleKey])[] = [
  ['nightly 2026-01-02T03:00:00.000Z', { id: 'nightly', dueMs: DUE_MS }],
  [
    'nightly 2026-01-02T03:00:00.000Z again 12',
    { id: 'nightly', dueMs: DUE_MS, repeat: { kind: 'again', failed: 12 } },
  ],
  [
    'nightly 2026-01-02T03:00:00.000Z at its time',
    { id: 'nightly', dueMs: DUE_MS, repeat: { kind: 'at its time' } },
  ],
  [
    'audit parties 2026-01-02T03:00:00.000Z',
    { id: 'audit-parties', dueMs: DUE_MS },
  ],
  [
    'audit checkpoints 2026-01-02T03:00:00.000Z at its time',
    {
      id: 'audit-checkpoints',
      dueMs: DUE_MS,
      repeat: { kind: 'at its time' },
    },
  ],
];

test.each(KEYS)('the key "%s" is written and read', (text, key) => {
  expect(formatScheduleKey(key)).toBe(text);
  expect(parseScheduleKey(text)).toEqual(key);
});

test.each([
  FIRST_RUN_KEY,
  '',
  'weekly 2026-01-02T03:00:00.000Z',
  'nightly 2026-01-02',
  'nightly 2026-99-02T03:00:00.000Z',
  'nightly 2026-01-02T03:00:00.000Z again',
  'nightly 2026-01-02T03:00:00.000Z twice',
])('the text "%s" is not the key of a scheduled time', (text) => {
  expect(parseScheduleKey(text)).toBeUndefined();
});
