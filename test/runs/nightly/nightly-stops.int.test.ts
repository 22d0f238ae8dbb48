/** When the exports of a nightly run stop early, and when they go on. */
import { describe, expect, test } from 'vitest';
import {
  PermanentError,
  UnreachableError,
} from '../../../src/errors/errors.ts';
import type { JobDeps } from '../../../src/runs/job.ts';
import { exportDue } from '../../../src/runs/nightly/nightly-exports.ts';
import type { Run } from '../../../src/runs/store/run-store.ts';
import {
  addIdleLedgers,
  addParties,
  setLastAsked,
} from '../../support/mirror-arrange.ts';
import { quarantineCodes } from '../../support/mirror-state.ts';
import { FIRST, nightlyWorlds, runNight } from './nightly-world.ts';
import { COMPLETE } from '../stages-double.ts';

const { database, openWorld } = await nightlyWorlds();

describe('the export stage of a nightly run', () => {
  test('ends with its window and names the parties that are left', async () => {
    await using world = await openWorld({
      export: async ({ partyId }) => {
        if (partyId !== FIRST)
          await new Promise((resolve) => setTimeout(resolve, 60_000).unref());
        return COMPLETE;
      },
    });
    const run = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    await world.deps.runs.start(run.runId);
    world.work();
    const night = (await world.deps.runs.get(run.runId)) as Run;
    const { signal } = new AbortController();
    const outcome = await exportDue(night, world.deps, {
      signal,
      untilMs: Date.now() + 3_000,
    });
    expect(outcome).toMatchObject({
      verdict: 'incomplete',
      evidence: {
        unasked: 2,
        reason: 'stopped early: NIGHTLY_WINDOW has ended',
      },
    });
    expect(outcome.evidence['unaskedParties']).toHaveLength(2);
  });

  test('asks the source for nothing where the object store refuses what it will need', async () => {
    await using world = await openWorld({
      tryStore: async () => {
        throw new PermanentError('Cannot write an object: 403 AccessDenied', {
          code: 'OBJECT_STORE_REFUSED',
        });
      },
    });
    const run = await runNight(world);
    expect([run.verdict, run.evidence['error']]).toMatchObject([
      'failed',
      { code: 'OBJECT_STORE_REFUSED' },
    ]);
    expect(world.asked).toEqual([]);
  });

  test('says that it was the object store that could not be reached, and asks no more', async () => {
    await using world = await openWorld({
      export: async () => {
        throw new UnreachableError('Cannot publish: no connection', {
          code: 'OBJECT_STORE_UNREACHABLE',
        });
      },
    });
    const run = await runNight(world);
    expect(run.evidence['exports']).toMatchObject({
      reason: 'stopped early: the object store could not be reached',
    });
    // Two jobs are worked at once: the second may have begun before the first failed.
    const asked = world.asked.filter((one) => one.startsWith('export')).length;
    expect(asked).toBeLessThan(3);
    expect(run.evidence['exports']).toMatchObject({
      failed: asked,
      unasked: 3 - asked,
    });
  });

  test('queues again what was lost with its queue, once nothing has moved for a while', async () => {
    await using world = await openWorld({});
    const run = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    await world.deps.runs.start(run.runId);
    world.work();
    let lost = 0;
    const { queues } = world;
    const queue: JobDeps['queue'] = {
      // As if the queue had been flushed as soon as it had taken them.
      add: async (name, jobs) => {
        if (lost > 0) return queues.add(name, jobs);
        lost = jobs.length;
      },
      holds: (name, jobId) => queues.holds(name, jobId),
      open: (name) => queues.open(name),
    };
    const night = (await world.deps.runs.get(run.runId)) as Run;
    const { signal } = new AbortController();
    const outcome = await exportDue(
      night,
      { ...world.deps, queue },
      { signal, stalledMs: 300 },
    );
    expect(outcome).toMatchObject({
      verdict: 'complete',
      evidence: { parties: 3, unasked: 0 },
    });
    expect(lost).toBeGreaterThan(0);
  });

  test('stops asking where three ledgers in a row fail of the source, blames none of them, and says of what', async () => {
    const more = [4, 5, 6, 7, 8].map((digit) => String(digit).repeat(64));
    await addParties(database.pool, more);
    await using world = await openWorld({
      export: async () => {
        throw new PermanentError('Cannot export: the token is refused', {
          code: 'SOURCE_UNAUTHORIZED',
        });
      },
    });
    const run = await runNight(world);
    const asked = world.asked.filter((one) => one.startsWith('export')).length;
    // Two jobs are worked at once.
    expect(asked).toBeLessThan(5);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['exports']).toMatchObject({
      reason:
        'stopped early: 3 ledgers in a row failed because of the source: SOURCE_UNAUTHORIZED',
    });
    // One that failed at that moment may not be written down yet: then it counts as not
    // asked.
    const { failed, unasked } = run.evidence['exports'] as {
      failed: number;
      unasked: number;
    };
    expect([failed + unasked, failed <= asked]).toEqual([8, true]);
    expect(await quarantineCodes(database.pool)).toEqual([]);
  });

  test('a refusal of some ledgers ends nothing while others are answered, and names those', async () => {
    const all = Array.from({ length: 40 }, (_, at) =>
      `ab${at + 10}`.repeat(16),
    );
    await addParties(database.pool, all);
    const refused = new Set(all.slice(0, 24));
    await using world = await openWorld({
      export: async ({ partyId }) => {
        if (!refused.has(partyId)) return COMPLETE;
        throw new PermanentError('Cannot export: 404', {
          code: 'SOURCE_ABSENT',
        });
      },
    });
    const run = await runNight(world);
    const asked = world.asked.filter((one) => one.startsWith('export'));
    expect(new Set(asked).size).toBe(43);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['exports']).toMatchObject({ failed: 24, unasked: 0 });
  });

  test('asks for parties whose ids are as long as they may be, in jobs that the queue takes', async () => {
    const all = Array.from({ length: 220 }, (_, at) =>
      `${at + 10} `.padEnd(1_000, 'é').slice(0, 500),
    );
    await addIdleLedgers(database.pool, all);
    await setLastAsked(database.pool, 3);
    await using world = await openWorld({});
    const run = await runNight(world);
    expect(run.evidence['exports']).toMatchObject({ failed: 0, unasked: 0 });
  });

  test('a source that refuses everybody is left alone after fifty ledgers', async () => {
    const all = Array.from({ length: 90 }, (_, at) =>
      `ab${at + 10}`.repeat(16),
    );
    await addParties(database.pool, all);
    await using world = await openWorld({
      export: async () => {
        throw new PermanentError('Cannot export: 403', {
          code: 'SOURCE_FORBIDDEN',
        });
      },
    });
    const run = await runNight(world);
    const asked = world.asked.filter((one) => one.startsWith('export')).length;
    expect(asked).toBeLessThan(60);
    expect(run.evidence['exports']).toMatchObject({
      reason:
        'stopped early: 50 ledgers in a row failed because of the source: SOURCE_FORBIDDEN',
    });
  });

  test('asks for nothing more in its own process while the reason to stop is still being written down', async () => {
    await addParties(
      database.pool,
      [4, 5, 6, 7, 8].map((digit) => String(digit).repeat(64)),
    );
    await using world = await openWorld({
      export: async () => {
        throw new PermanentError('Cannot export: the token is refused', {
          code: 'SOURCE_UNAUTHORIZED',
        });
      },
    });
    const { runs } = world.deps;
    const keep = runs.keep.bind(runs);
    runs.keep = async (runId, params) => {
      if ('stopped' in params)
        await new Promise((resolve) => setTimeout(resolve, 500));
      return keep(runId, params);
    };
    await runNight(world);
    expect(
      world.asked.filter((one) => one.startsWith('export')).length,
    ).toBeLessThan(5);
  });

  test('goes on where ledgers fail for reasons of their own, however many', async () => {
    await using world = await openWorld({
      export: async () => {
        throw new PermanentError('Cannot export: no such party', {
          code: 'EXPORT_REFUSED',
        });
      },
    });
    const run = await runNight(world);
    expect(run.evidence['exports']).toMatchObject({ failed: 3, unasked: 0 });
  });

  test('ends where no worker takes part, and says so', async () => {
    await using world = await openWorld({});
    const run = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    const { signal } = new AbortController();
    const outcome = await exportDue(run, world.deps, {
      signal,
      noProgressMs: 1_000,
      stalledMs: 500,
    });
    expect(outcome).toMatchObject({
      verdict: 'incomplete',
      evidence: {
        unasked: 3,
        reason: expect.stringMatching(/no worker has made progress/) as string,
      },
    });
  });

  test.each([
    [{ lastMs: 6_000, medianMs: 4_000 }, 'more than five seconds'],
    [{ lastMs: 1_500, medianMs: 120 }, 'ten times the usual'],
  ])('stops asking a source whose lists take %o: %s', async (latency) => {
    await using world = await openWorld({ sourceLatency: async () => latency });
    const run = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    const { signal } = new AbortController();
    const outcome = await exportDue(run, world.deps, {
      signal,
      probeEveryMs: 0,
    });
    expect(outcome).toMatchObject({
      verdict: 'incomplete',
      evidence: {
        unasked: 3,
        reason: 'stopped early: the source answers much slower than usual',
      },
    });
  });

  test('asks a source that went away for no other ledger until its window is over', async () => {
    const many = Array.from({ length: 50 }, (_, index) =>
      (index + 4_097).toString(16).padStart(64, 'a'),
    );
    await addParties(database.pool, many);
    await using world = await openWorld(
      {
        export: async () => {
          throw new UnreachableError('Cannot reach the source', {
            code: 'SOURCE_UNREACHABLE',
            retryAfterMs: 10,
          });
        },
        isSourceThere: async () => false,
      },
      { nightlyWindow: 3_000 },
    );
    const run = await runNight(world);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence).toMatchObject({
      sourceAway: { code: 'SOURCE_UNREACHABLE' },
      exports: { failed: 0, unasked: 53 },
    });
    const asked = world.asked.filter((ask) => ask.startsWith('export'));
    // Those that were in hand: two jobs are worked at once.
    expect(asked.length).toBeLessThanOrEqual(2);
  });
});
