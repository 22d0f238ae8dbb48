/**
 * The next page is requested while one is stored: what that may cost the source, and what
 * becomes of the request after an error.
 */
import { expect, test } from 'vitest';
import type { Failpoint } from '../../src/lists/sync-context.ts';
import type { PageRequest } from '../../src/lists/ports.ts';
import { checkpoints, ListDouble, parties } from './list-double.ts';
import { freshSyncWorld, newRun } from './sync-world.ts';

const world = await freshSyncWorld();

function full(): ListDouble {
  const double = new ListDouble();
  double.lists.parties = parties(300);
  double.lists.checkpoints = checkpoints(200);
  return double;
}

/** How often the same page was requested, at most. */
function timesRepeated(questions: readonly PageRequest[]): number {
  const oldestFirst = questions.filter(({ newestFirst }) => !newestFirst);
  const pages = new Set(
    oldestFirst.map((question) => JSON.stringify(question)),
  );
  return oldestFirst.length - pages.size;
}

test('syncList requests the next page before the last one is stored', async () => {
  const double = full();
  const requestedOnCommit: number[] = [];
  const failpoint = (step: Failpoint): void => {
    if (step === 'committed') requestedOnCommit.push(double.questions.length);
  };
  const { verdict } = await world.sync(
    double,
    { list: 'parties' },
    { deps: { failpoint } },
  );
  expect(verdict).toBe('complete');
  // The first page waits until the resume point has proven right.
  expect(requestedOnCommit.slice(0, 6)).toEqual([1, 3, 4, 5, 6, 7]);
});

test.each(['parties', 'checkpoints'] as const)(
  'syncList reads %s with hardly a request more than it reads pages',
  async (list) => {
    const double = full();
    const { verdict, evidence } = await world.sync(double, { list });
    expect(verdict).toBe('complete');
    expect(evidence['rows']).toBe(
      `${double.lists[list].length - Number(list === 'parties')}`,
    );
    // Each of two readings looks at the newest page on the way, and drops the request then
    // in flight. Pages with equal checkpoints are requested twice.
    const twins = list === 'parties' ? 0 : 80;
    expect(
      timesRepeated(double.questions) - Number(evidence['pages']) / 2,
    ).toBeLessThanOrEqual(4 + twins);
  },
);

test('syncList gives the request up when a page cannot be stored', async () => {
  const double = full();
  const runId = await newRun(world.pool, 'parties');
  const signals: AbortSignal[] = [];
  let inFlight = 0;
  const source = {
    party: (id: string) => double.party(id),
    page: async (question: PageRequest, signal: AbortSignal) => {
      signals.push(signal);
      inFlight += 1;
      try {
        // The fourth page is the one that is requested ahead of the third.
        if (signals.length === 4)
          await new Promise((_, reject) => {
            signal.addEventListener('abort', () => reject(signal.reason));
          });
        return await double.page(question, signal);
      } finally {
        inFlight -= 1;
      }
    },
  };
  let commits = 0;
  const failpoint = (step: Failpoint): void => {
    if (step !== 'committing') return;
    commits += 1;
    if (commits === 3) throw new Error('cannot store');
  };
  const syncing = world.sync(
    source,
    { list: 'parties', runId },
    { deps: { failpoint } },
  );
  await expect(syncing).rejects.toThrow('cannot store');
  expect(signals.map(({ aborted }) => aborted)).toEqual([
    false,
    false,
    false,
    true,
  ]);
  expect(inFlight).toBe(0);
  const { verdict } = await world.sync(double, { list: 'parties', runId });
  expect(verdict).toBe('complete');
});

test('syncList takes an error of the page ahead after the page before it is stored', async () => {
  const double = full();
  double.answer = ({ number, page }) => {
    if (number === 5) throw new Error('no answer');
    return page;
  };
  const runId = await newRun(world.pool, 'parties');
  await expect(world.sync(double, { list: 'parties', runId })).rejects.toThrow(
    'no answer',
  );
  // Pages 1 to 4 were answered, and all four of them are held.
  expect((await world.held('parties')).length).toBeGreaterThanOrEqual(37);
  const { verdict } = await world.sync(double, { list: 'parties', runId });
  expect(verdict).toBe('complete');
});
