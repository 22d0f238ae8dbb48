/** A source that is away costs a nightly run the time that it is away, and nothing else. */
import { describe, expect, test } from 'vitest';
import {
  RetryableError,
  UnreachableError,
} from '../../../src/errors/errors.ts';
import type { Stages } from '../../../src/runs/job.ts';
import { makeUpMissed } from '../../../src/runs/nightly/missed-times.ts';
import type { Notice } from '../../../src/runs/notices.ts';
import { SCHEDULED } from '../../../src/runs/nightly/schedules.ts';
import { enqueueRun } from '../../../src/runs/enqueue.ts';
import { readStoredFacts } from '../../../src/status/store/status-store.ts';
import {
  addParties,
  setMirrorCreatedAt,
  setScheduleSince,
} from '../../support/mirror-arrange.ts';
import { COMPLETE, type JobWorld } from '../stages-double.ts';
import {
  ended,
  FIRST,
  nightlyWorlds,
  runNight,
  SECOND,
  THIRD,
} from './nightly-world.ts';

const { database, openWorld } = await nightlyWorlds();

const FAILURES: readonly (readonly [string, () => Error])[] = [
  [
    '502',
    () =>
      new RetryableError('the source answers 502', {
        code: 'SOURCE_BUSY',
        meta: { status: 502, attempts: 5 },
      }),
  ],
  [
    'a reset connection',
    () =>
      new RetryableError('read ECONNRESET', {
        code: 'SOURCE_BROKE',
        meta: { errno: 'ECONNRESET' },
      }),
  ],
  [
    'a 504 of a front',
    () =>
      new RetryableError('the source answers 504', {
        code: 'SOURCE_STATUS',
        meta: { status: 504, attempts: 5 },
      }),
  ],
  [
    'a name that does not resolve',
    () =>
      new UnreachableError('getaddrinfo EAI_AGAIN', {
        code: 'SOURCE_UNREACHABLE',
        meta: { errno: 'EAI_AGAIN', attempts: 9 },
      }),
  ],
];

test.each(FAILURES.slice(0, 2))(
  'a source that answers with %s is waited for before the lists are read',
  async (_how, failure) => {
    const source = new FlakySource(failure);
    source.leave(2);
    await using world = await openWorld({ ...source.stages });

    const run = await runScheduledNight(world);
    expect([run.verdict, run.evidence['sourceWaits']]).toMatchObject([
      'complete',
      { times: 1 },
    ]);
    expect(run.evidence).not.toHaveProperty('sourceAway');
  },
);

test.each(FAILURES.slice(1))(
  'a source that answers with %s amid the exports is waited for, and no ledger is blamed',
  async (_how, failure) => {
    const source = new FlakySource(failure);
    await using world = await openWorld({
      ...source.stages,
      export: async ({ partyId }) => {
        if (partyId === SECOND && source.leaves === 0) source.leave(2);
        source.refuseIfAway();
        return COMPLETE;
      },
    });

    const run = await runScheduledNight(world);
    expect([run.verdict, run.evidence['sourceWaits']]).toMatchObject([
      'complete',
      { times: 1 },
    ]);
    expect(run.evidence['exports']).toMatchObject({
      parties: 3,
      failed: 0,
      unasked: 0,
    });
  },
);

describe('a nightly run whose source is away', () => {
  const [[, answers502]] = FAILURES as [(typeof FAILURES)[0]];

  test('shows since when it waits, and for what', async () => {
    const source = new FlakySource(answers502);
    source.leave(3);
    await using world = await openWorld({ ...source.stages });
    const run = await startScheduledNight(world);

    await expect
      .poll(
        async () => (await world.deps.runs.get(run))?.params['sourceAbsence'],
      )
      .toMatchObject({
        code: 'SOURCE_BUSY',
        message: 'the source answers 502',
      });
    const { awaitedSource } = await readStoredFacts(world.deps.db);
    expect(awaitedSource).toMatchObject({ reason: 'the source answers 502' });
    expect((await ended(world, run)).params).not.toHaveProperty(
      'sourceAbsence',
    );
  });

  test('is told of by a notice while it waits, once however often the source leaves', async () => {
    const source = new FlakySource(answers502);
    source.leave(2);
    await using world = await openWorld({
      ...source.stages,
      export: async ({ partyId }) => {
        if (partyId === THIRD && source.leaves === 1) source.leave(2);
        source.refuseIfAway();
        return COMPLETE;
      },
    });
    const posted: Notice[] = [];
    const post = async (notice: Notice) => void posted.push(notice);
    Object.assign(world.deps, { notices: { post, wanted: ['nightly'] } });

    const run = await runScheduledNight(world);
    expect(run.evidence['sourceWaits']).toMatchObject({ times: 2 });
    await expect
      .poll(() => posted.map(({ type }) => type))
      .toEqual(['run.started', 'run.waiting', 'run.finished']);
    const [, waiting] = posted;
    expect(waiting?.run).toMatchObject({
      runId: run.runId,
      state: 'running',
      verdict: null,
      evidence: {
        sourceAway: { code: 'SOURCE_BUSY', message: 'the source answers 502' },
      },
    });
  });

  test('ends with its window, names the absence, and is tried again', async () => {
    const source = new FlakySource(answers502);
    source.leave(Infinity);
    await using world = await openWorld(
      { ...source.stages },
      { nightlyWindow: 3_000 },
    );

    const run = await runScheduledNight(world);
    expect([run.verdict, run.evidence['sourceAway']]).toMatchObject([
      'failed',
      { code: 'SOURCE_BUSY', isGivenUp: true },
    ]);
    expect(world.asked.filter((one) => one.startsWith('export'))).toEqual([]);
    expect(await nextAttempt(world, run.finishedAt)).toBe('scheduled, again');
  });

  test('leaves what its window cut unasked, and is tried again', async () => {
    const source = new FlakySource(answers502);
    await using world = await openWorld(
      {
        ...source.stages,
        export: async ({ partyId }) => {
          if (partyId === SECOND) source.leave(Infinity);
          source.refuseIfAway();
          return COMPLETE;
        },
      },
      { nightlyWindow: 4_000 },
    );

    const run = await runScheduledNight(world);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence).toMatchObject({
      sourceAway: { code: 'SOURCE_BUSY' },
      exports: {
        failed: 0,
        reason: expect.stringMatching(/the source was away since/) as string,
      },
    });
    expect(await nextAttempt(world, run.finishedAt)).toBe('scheduled, again');
  });

  test('of a command ends at once if no connection was ever made', async () => {
    const source = new FlakySource(
      () =>
        new UnreachableError('ECONNREFUSED', {
          code: 'SOURCE_UNREACHABLE',
          meta: { attempts: 9 },
        }),
    );
    source.leave(Infinity);
    await using world = await openWorld({ ...source.stages });

    const run = await runNight(world);
    expect([run.verdict, run.evidence['error']]).toMatchObject([
      'failed',
      { unreachable: true },
    ]);
  });

  test('keeps its exports from no list that fails while the source is there', async () => {
    await using world = await openWorld({
      sync: async ({ list }) => {
        if (list === 'parties') throw answers502();
        return COMPLETE;
      },
    });

    const run = await runScheduledNight(world);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['exports']).toMatchObject({ parties: 3, failed: 0 });
  });
});

test('a list that never ends costs its share of the window, and the exports go on with the parties that are known', async () => {
  let isCut = false;
  await using world = await openWorld(
    {
      sync: async ({ list }, { signal }) => {
        if (list === 'checkpoints') return COMPLETE;
        const { promise, reject } = Promise.withResolvers<never>();
        signal.addEventListener('abort', () => {
          isCut = true;
          reject(signal.reason as Error);
        });
        return promise;
      },
    },
    { nightlyWindow: 12_000 },
  );

  const run = await runScheduledNight(world);
  expect(isCut).toBe(true);
  expect(run).toMatchObject({
    verdict: 'incomplete',
    evidence: {
      lists: {
        parties: { verdict: 'incomplete', error: { code: 'SHARE_USED' } },
        checkpoints: { verdict: 'complete' },
      },
      exports: { parties: 3, failed: 0, unasked: 0 },
    },
  });
});

describe('a ledger without an answer while the source answers others', () => {
  test('comes again behind the others, and fails alone', async () => {
    const more = [4, 5, 6, 7].map((digit) => String(digit).repeat(64));
    await addParties(database.pool, more);
    await using world = await openWorld({
      export: async ({ partyId }) => {
        if (partyId === FIRST)
          throw new RetryableError('read ECONNRESET', {
            code: 'SOURCE_BROKE',
            meta: { errno: 'ECONNRESET' },
          });
        return COMPLETE;
      },
    });

    const run = await runScheduledNight(world);
    expect(run.evidence['exports']).toMatchObject({
      parties: 6,
      failed: 1,
      unasked: 0,
      failures: [{ partyId: FIRST }],
    });
    const asked = world.asked.filter((one) => one.startsWith('export'));
    expect(asked.filter((one) => one.endsWith(FIRST))).toHaveLength(4);
    expect(asked.slice(-3)).toEqual(Array(3).fill(`export ${FIRST}`));
  });

  test('costs its share of the window and no more', async () => {
    const more = [4, 5, 6, 7, 8].map((digit) => String(digit).repeat(64));
    await addParties(database.pool, more);
    let turns = 0;
    await using world = await openWorld(
      {
        export: async ({ partyId }, { signal }) => {
          if (partyId !== FIRST) return COMPLETE;
          turns += 1;
          if (turns > 1) return COMPLETE;
          const { promise, reject } = Promise.withResolvers<never>();
          signal.addEventListener('abort', () =>
            reject(signal.reason as Error),
          );
          return promise;
        },
      },
      { nightlyWindow: 24_000 },
    );

    const run = await runScheduledNight(world);
    expect(run.evidence['exports']).toMatchObject({
      parties: 8,
      failed: 0,
      unasked: 0,
    });
    expect(turns).toBe(2);
  });
});

/** A source that goes away for so many small questions. */
class FlakySource {
  readonly #failure: () => Error;
  #questionsAway = 0;
  leaves = 0;

  constructor(failure: () => Error) {
    this.#failure = failure;
  }

  leave(questions: number): void {
    this.#questionsAway = questions;
    this.leaves += 1;
  }

  refuseIfAway(): void {
    if (this.#questionsAway > 0) throw this.#failure();
  }

  get stages(): Partial<Stages> {
    return {
      sync: async () => {
        this.refuseIfAway();
        return COMPLETE;
      },
      export: async () => {
        this.refuseIfAway();
        return COMPLETE;
      },
      isSourceThere: async () => {
        if (this.#questionsAway === 0) return true;
        this.#questionsAway -= 1;
        return false;
      },
    };
  }
}

const SCHEDULE = { pattern: '0 2 * * *', tz: 'UTC' };

async function startScheduledNight(world: JobWorld): Promise<string> {
  const { runs } = world.deps;
  const scheduleKey = `nightly ${new Date().toISOString()}`;
  const run = await runs.create({
    kind: 'nightly',
    subject: 'scheduled',
    scheduleKey,
  });
  world.work();
  await enqueueRun(run, world.deps);
  return run.runId;
}

async function runScheduledNight(world: JobWorld) {
  return ended(world, await startScheduledNight(world));
}

/** The subject of the run that is begun for the scheduled time, six minutes later. */
async function nextAttempt(world: JobWorld, finishedAt: string | null) {
  const endedMs = Date.parse(finishedAt ?? '');
  const minute = new Date(endedMs - 60_000);
  const pattern = `${minute.getUTCMinutes()} ${minute.getUTCHours()} * * *`;
  const nightly = { ...SCHEDULE, pattern };
  await setMirrorCreatedAt(database.pool, '2026-01-01');
  await setScheduleSince(database.pool, 'nightly', nightly, '2026-01-01');
  await makeUpMissed(
    SCHEDULED.nightly,
    { nightly, audit: SCHEDULE },
    world.deps,
    endedMs + 6 * 60_000,
  );
  const [run] = await world.deps.runs.list({
    kind: 'nightly',
    states: ['queued', 'running'],
    limit: 1,
  });
  return run?.subject;
}
