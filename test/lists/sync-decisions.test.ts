/** What a sync does after a reading that ended without a verdict. */
import { describe, expect, test } from 'vitest';
import {
  DoubtError,
  EndNotShown,
  OverlapMissing,
  SourceBehind,
} from '../../src/lists/page-checks.ts';
import { StaleResumePoint } from '../../src/lists/resume-point.ts';
import {
  decideNext,
  NO_SETBACKS,
  NOT_SHOWN_MAX,
  READINGS_MAX,
  type Setback,
  STALE_MAX,
  type SyncState,
} from '../../src/lists/sync-decisions.ts';

const INCREMENT: SyncState = {
  generation: { kind: 'current', sequence: 4n },
  setbacks: NO_SETBACKS,
  readings: 1,
};
const AUDIT: SyncState = {
  ...INCREMENT,
  generation: { kind: 'audit', sequence: 4n },
};
const NEW_AUDIT: SyncState = {
  ...INCREMENT,
  generation: { kind: 'audit', sequence: 0n },
};
const DOUBT = new DoubtError('x', { code: 'X' });
const MISSING = new OverlapMissing('parties', 'rows are not shown');
const thrown = (error: unknown): Setback => ({ kind: 'thrown', error });

describe('a claim without confirmation', () => {
  test('is followed by an audit that resumes from the resume state again', () => {
    const state = { ...INCREMENT, setbacks: { stale: 2, notShown: 1 } };
    expect(decideNext(state, { kind: 'unconfirmed' })).toEqual({
      kind: 'read again',
      next: { kind: 'confirm' },
      setbacks: { stale: 0, notShown: 1 },
    });
  });

  test('ends the sync after the last reading', () => {
    const state = { ...AUDIT, readings: READINGS_MAX };
    expect(decideNext(state, { kind: 'unconfirmed' })).toEqual({
      kind: 'refuse unsteady',
    });
  });
});

describe('an outdated resume point', () => {
  test('makes the sync resume from Postgres', () => {
    expect(decideNext(AUDIT, thrown(new StaleResumePoint()))).toEqual({
      kind: 'read again',
      next: { kind: 'resume' },
      setbacks: { stale: 1, notShown: 0 },
    });
  });

  test('ends the sync if it keeps changing', () => {
    const state = { ...AUDIT, setbacks: { stale: STALE_MAX, notShown: 0 } };
    expect(decideNext(state, thrown(new StaleResumePoint()))).toEqual({
      kind: 'busy',
    });
  });
});

describe('stored rows that the source does not show', () => {
  test.each(Array.from({ length: NOT_SHOWN_MAX }, (_, index) => index))(
    'are requested again after %i attempts, with a longer pause',
    (notShown) => {
      const state = { ...INCREMENT, setbacks: { stale: 1, notShown } };
      expect(decideNext(state, thrown(MISSING))).toEqual({
        kind: 'read again',
        next: { kind: 'try next node', pauses: notShown + 1 },
        setbacks: { stale: 1, notShown: notShown + 1 },
      });
    },
  );

  test('turn an increment into an audit after the last attempt', () => {
    const setbacks = { stale: 1, notShown: NOT_SHOWN_MAX };
    expect(decideNext({ ...INCREMENT, setbacks }, thrown(MISSING))).toEqual({
      kind: 'read again',
      next: { kind: 'audit instead', because: 'rows are not shown' },
      setbacks: { stale: 0, notShown: NOT_SHOWN_MAX },
    });
  });

  test('are a reason to refuse an audit of this run', () => {
    expect(decideNext(NEW_AUDIT, thrown(MISSING))).toEqual({
      kind: 'refuse',
      error: MISSING,
    });
  });
});

describe('a doubt', () => {
  test('restarts an audit that an earlier run has begun', () => {
    expect(decideNext(AUDIT, thrown(DOUBT))).toEqual({
      kind: 'read again',
      next: { kind: 'restart audit' },
      setbacks: NO_SETBACKS,
    });
  });

  test.each([
    ['an increment', INCREMENT],
    ['a new audit', NEW_AUDIT],
  ])('ends %s', (_name, state) => {
    expect(decideNext(state, thrown(DOUBT))).toEqual({
      kind: 'refuse',
      error: DOUBT,
    });
  });
});

test('a source that is behind is asked which network it serves', () => {
  const error = new SourceBehind('parties', 9n, 8n);
  expect(decideNext(AUDIT, thrown(error))).toEqual({
    kind: 'refuse source behind',
    error,
  });
});

test('an end that is not shown ends the sync, and an audit with it', () => {
  const error = new EndNotShown('x', { code: 'X' });
  expect(decideNext(AUDIT, thrown(error))).toEqual({ kind: 'refuse', error });
});

test('any other error is thrown again', () => {
  const error = new Error('no connection');
  expect(decideNext(AUDIT, thrown(error))).toEqual({ kind: 'rethrow', error });
});
