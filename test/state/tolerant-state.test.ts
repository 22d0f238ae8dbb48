/** The outage rules of the tolerant state, on a clock of the test's own. */
import { expect, test } from 'vitest';
import { PermanentError, UnreachableError } from '../../src/errors/errors.ts';
import {
  type ResumeState,
  tolerateOutages,
} from '../../src/state/resume-state.ts';
import { recordingLog } from './recording-log.ts';

/** A store that answers or fails as told, and counts how often it was asked. */
function switchable(): ResumeState & {
  error: Error | undefined;
  asked: number;
} {
  const store = {
    error: undefined as Error | undefined,
    asked: 0,
    async answer<Value>(value: Value): Promise<Value> {
      store.asked += 1;
      if (store.error !== undefined) throw store.error;
      return value;
    },
    get: () => store.answer<unknown>('hint'),
    set: () => store.answer(undefined),
    reserve: () => store.answer({ waitMs: 7 }),
    close: async () => undefined,
  };
  return store;
}

const AWAY = new UnreachableError('Cannot read: away', {
  code: 'STATE_UNREACHABLE',
});

test('the tolerant state gives the answers of its store while it is there', async () => {
  const store = switchable();
  const log = recordingLog();
  const state = tolerateOutages(store, log);
  expect(await state.get('k')).toBe('hint');
  expect(await state.reserve('b', 1)).toEqual({ waitMs: 7 });
  expect(log.lines).toEqual([]);
});

test('the tolerant state asks once a second in an outage, logs it once and notices the return', async () => {
  const store = switchable();
  const log = recordingLog();
  let nowMs = 1000;
  const state = tolerateOutages(store, log, () => nowMs);
  store.error = AWAY;
  for (let count = 0; count < 10; count += 1)
    expect(await state.get('k')).toBeUndefined();
  expect(store.asked).toBe(1);
  nowMs += 1000;
  await state.set('k', 1, 1);
  await state.set('other', 1, 1);
  expect(store.asked).toBe(2);
  expect(log.lines).toHaveLength(1);
  store.error = undefined;
  nowMs += 1000;
  expect(await state.get('k')).toBe('hint');
  expect(await state.get('k')).toBe('hint');
  expect(log.lines.map(({ fields }) => fields)).toEqual([
    { err: AWAY },
    { awayMs: 2000 },
  ]);
});

test('the tolerant state grants a quarter of the rate without a burst in an outage', async () => {
  const store = switchable();
  let nowMs = 0;
  const state = tolerateOutages(store, recordingLog(), () => nowMs);
  store.error = AWAY;
  const waits = [];
  for (let count = 0; count < 4; count += 1)
    waits.push((await state.reserve('b', 4)).waitMs);
  expect(waits).toEqual([0, 1000, 2000, 3000]);
  nowMs = 10_000;
  expect(await state.reserve('b', 4)).toEqual({ waitMs: 0 });
});

test('the tolerant state throws what its store refuses for good', async () => {
  const store = switchable();
  store.error = new PermanentError('Cannot read: refused', {
    code: 'STATE_REDIS_NOPERM',
  });
  const state = tolerateOutages(store, recordingLog());
  await expect(state.get('k')).rejects.toBe(store.error);
  await expect(state.get('k')).rejects.toBe(store.error);
});
