/** The nightly run over a double of the stages: what it asks, what it concludes, what a crash leaves. */
import { beforeEach, describe, expect, it } from 'vitest';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import { exportDue } from '../../src/runs/nightly/nightly-exports.ts';
import { handleJob } from '../../src/worker/registry.ts';
import { SourceWatch } from '../../src/runs/nightly/source-watch.ts';
import { PermanentError, RetryableError, UnreachableError } from '../../src/core/errors.ts';
import type { JobDeps } from '../../src/runs/job.ts';
import type { Run } from '../../src/runs/store/run.ts';
import { freshDatabase } from '../support/database.ts';
import { waitFor } from '../support/wait-for.ts';
import { COMPLETE, openJobWorld, type JobWorld } from './stages-double.ts';
import { nightlyLedgers, quarantineCodes, recordedSourceUrl } from '../support/mirror-state.ts';
import {
  addParties,
  emptyLists,
  emptyRuns,
  forgetSourceUrl,
  silenceRuns,
} from '../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const PARTIES = [1, 2, 3].map((digit) => String(digit).repeat(64));
const [FIRST = '', SECOND = '', THIRD = ''] = PARTIES;
let worlds = 0;

beforeEach(async () => {
  await emptyRuns(database.pool);
  await emptyLists(database.pool);
  await addParties(database.pool, [...PARTIES, 'network']);
});

function openWorld(
  ...given: Parameters<typeof openJobWorld> extends [string, string, ...infer Rest] ? Rest : never
): Promise<JobWorld> {
  return openJobWorld(database.url, `test-${(worlds += 1)}`, ...given);
}

async function runNight(world: JobWorld): Promise<Run> {
  const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
  world.work();
  await enqueueRun(run, world.deps);
  return ended(world, run.runId);
}

function ended(world: JobWorld, runId: string): Promise<Run> {
  return waitFor(
    async () => {
      const run = await world.deps.runs.get(runId);
      return run?.state === 'done' || run?.state === 'cancelled' ? run : undefined;
    },
    { what: 'the nightly run to end' },
  );
}

describe('a nightly run', () => {
  it('syncs both lists, exports every party that can be, loads and verifies', async () => {
    await using world = await openWorld({
      export: async () => ({ verdict: 'complete', evidence: { rows: '7', bytes: '70', segments: '1' } }),
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('complete');
    expect(run.evidence['exports']).toMatchObject({
      parties: 3,
      failed: 0,
      newRows: '21',
      newBytes: '210',
      newSegments: '3',
    });
    expect(new Set(world.asked.slice(0, 2))).toEqual(new Set(['sync parties', 'sync checkpoints']));
    expect(new Set(world.asked.slice(2, 5))).toEqual(new Set(PARTIES.map((id) => `export ${id}`)));
    expect(world.asked.slice(5)).toEqual(['load', 'verify']);
  });

  it('ends where Postgres refuses the evidence of one export, which is settled with a bare code', async () => {
    await database.pool.query(`
      create function mirror.refuse_poison() returns trigger language plpgsql as $$
      begin
        if new.outcome::text like '%poison%' then raise exception 'no such text' using errcode = '22P05'; end if;
        return new;
      end $$;
      create trigger refuse_poison before update on mirror.nightly_units
        for each row execute function mirror.refuse_poison()`);
    try {
      await using world = await openWorld({
        export: async ({ partyId }) => ({
          verdict: 'complete',
          evidence: {
            rows: '7',
            bytes: '70',
            segments: '1',
            ...(partyId === SECOND ? { note: 'poison' } : {}),
          },
        }),
      });
      const run = await runNight(world);
      expect(run.verdict).toBe('incomplete');
      expect(await nightlyLedgers(database.pool)).toEqual([
        {
          partyId: FIRST,
          state: 'done',
          outcome: expect.objectContaining({ verdict: 'complete', rows: '7' }),
        },
        { partyId: SECOND, state: 'done', outcome: { verdict: 'incomplete', code: 'EVIDENCE_UNREADABLE' } },
        {
          partyId: THIRD,
          state: 'done',
          outcome: expect.objectContaining({ verdict: 'complete', rows: '7' }),
        },
      ]);
    } finally {
      await database.pool.query('drop function mirror.refuse_poison cascade');
    }
  });

  it('asks only the parties that were chosen, and no more than the limit', async () => {
    await using world = await openWorld(
      {},
      { nightlyParties: { kind: 'list', ids: [FIRST, SECOND] }, nightlyExportsMax: 1 },
    );
    const run = await runNight(world);
    // One of the two was left: that is no complete night, however well the other went.
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['exports']).toMatchObject({
      verdict: 'incomplete',
      due: 2,
      parties: 1,
      deferred: 1,
      deferredSince: null,
      deferredNeverAsked: 1,
    });
    expect(world.asked.filter((ask) => ask.startsWith('export'))).toEqual([`export ${FIRST}`]);
  });

  it('is incomplete, not stopped, where one party fails for ever, and names it', async () => {
    await using world = await openWorld({
      export: async ({ partyId }) => {
        if (partyId === SECOND)
          throw new PermanentError('Cannot export: refused', { code: 'EXPORT_REFUSED' });
        return COMPLETE;
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['exports']).toMatchObject({
      parties: 2,
      failed: 1,
      failures: [{ partyId: SECOND, outcome: { error: { code: 'EXPORT_REFUSED' } } }],
    });
    expect(world.asked).toContain('verify');
  });

  it('is complete where the store could not be cleared up, and says so', async () => {
    await using world = await openWorld({
      tidy: async () => {
        throw new PermanentError('Cannot list unfinished uploads', { code: 'OBJECT_STORE_REFUSED' });
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('complete');
    expect(run.evidence['untidy']).toMatchObject({ code: 'OBJECT_STORE_REFUSED' });
    expect(run.evidence['verify']).toMatchObject({ verdict: 'complete' });
  });

  it('tries an export again after a retryable error', async () => {
    let tries = 0;
    await using world = await openWorld({
      export: async ({ partyId }) => {
        if (partyId === THIRD && (tries += 1) < 3)
          throw new RetryableError('Cannot yet', { code: 'TEST', retryAfterMs: 20 });
        return COMPLETE;
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('complete');
    expect(tries).toBe(3);
  });

  it.each(['incomplete', 'suspicious'] as const)(
    'is %s where one export says that it is',
    async (verdict) => {
      await using world = await openWorld({
        export: async ({ partyId }) => (partyId === SECOND ? { verdict, evidence: { rows: '0' } } : COMPLETE),
      });
      const run = await runNight(world);
      expect([run.verdict, run.evidence['exports']]).toMatchObject([verdict, { [verdict]: 1 }]);
    },
  );

  it('is incomplete where a listed ledger is not covered, or a doubt is open', async () => {
    const covers = {
      listed: 4,
      configured: null,
      wanted: 4,
      covered: 3,
      neverAsked: 1,
      coveredTo: null,
      openDoubts: 0,
    };
    await using world = await openWorld({}, { completeness: async () => covers });
    const run = await runNight(world);
    expect([run.verdict, run.evidence['covers']]).toMatchObject(['incomplete', { covered: 3, wanted: 4 }]);
    await using other = await openWorld(
      {},
      { completeness: async () => ({ ...covers, covered: 4, openDoubts: 1 }) },
    );
    expect((await runNight(other)).verdict).toBe('incomplete');
  });

  it('ends with its window and names the parties that are left', async () => {
    await using world = await openWorld({
      export: async ({ partyId }) => {
        if (partyId !== FIRST) await new Promise((resolve) => setTimeout(resolve, 60_000).unref());
        return COMPLETE;
      },
    });
    const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
    await world.deps.runs.start(run.runId);
    world.work();
    const night = (await world.deps.runs.get(run.runId)) as Run;
    const limits = { untilMs: Date.now() + 3_000 };
    const outcome = await exportDue(night, world.deps, new AbortController().signal, undefined, limits);
    expect(outcome).toMatchObject({
      verdict: 'incomplete',
      evidence: { unasked: 2, reason: 'stopped early: the time of NIGHTLY_WINDOW is over' },
    });
    expect(outcome.evidence['unaskedParties']).toHaveLength(2);
  });

  it('asks the source for nothing where the object store refuses what it will need', async () => {
    await using world = await openWorld({
      tryStore: async () => {
        throw new PermanentError('Cannot write an object: 403 AccessDenied', {
          code: 'OBJECT_STORE_REFUSED',
        });
      },
    });
    const run = await runNight(world);
    expect([run.verdict, run.evidence['error']]).toMatchObject(['failed', { code: 'OBJECT_STORE_REFUSED' }]);
    expect(world.asked).toEqual([]);
  });

  it('publishes its report with the reason where an error ends it', async () => {
    const published: unknown[] = [];
    await using world = await openWorld({
      load: async () => COMPLETE,
      verify: async () => {
        throw new PermanentError('Cannot verify: the lake is of another mirror', { code: 'LAKE_FOREIGN' });
      },
      publishReport: async ({ runId }, outcome, covers) => {
        published.push({ runId, ...outcome, covers });
        return { ...outcome, evidence: { ...outcome.evidence, report: 'runs/x.json' } };
      },
    });
    const run = await runNight(world);
    expect(run).toMatchObject({
      verdict: 'failed',
      evidence: { error: { code: 'LAKE_FOREIGN' }, report: 'runs/x.json' },
    });
    expect(published).toMatchObject([
      {
        runId: run.runId,
        verdict: 'failed',
        evidence: { error: { code: 'LAKE_FOREIGN' } },
        covers: { covered: 3 },
      },
    ]);
  });

  it('says that it was the object store that could not be reached, and asks no more', async () => {
    await using world = await openWorld({
      export: async () => {
        throw new UnreachableError('Cannot publish: no connection', { code: 'OBJECT_STORE_UNREACHABLE' });
      },
    });
    const run = await runNight(world);
    expect(run.evidence['exports']).toMatchObject({
      reason: 'stopped early: the object store could not be reached',
    });
    // Two jobs are worked at once: the second may have begun before the first failed.
    const asked = world.asked.filter((one) => one.startsWith('export')).length;
    expect(asked).toBeLessThan(3);
    expect(run.evidence['exports']).toMatchObject({ failed: asked, unasked: 3 - asked });
  });

  it('queues again what was lost with its queue, once nothing has moved for a while', async () => {
    await using world = await openWorld({});
    const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
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
    const outcome = await exportDue(night, { ...world.deps, queue }, signal, undefined, { stalledMs: 300 });
    expect(outcome).toMatchObject({ verdict: 'complete', evidence: { parties: 3, unasked: 0 } });
    expect(lost).toBeGreaterThan(0);
  });

  it('stops asking where three ledgers in a row fail of the source, blames none of them, and says of what', async () => {
    const more = [4, 5, 6, 7, 8].map((digit) => String(digit).repeat(64));
    await addParties(database.pool, more);
    await using world = await openWorld({
      export: async () => {
        throw new PermanentError('Cannot export: the token is refused', { code: 'SOURCE_UNAUTHORIZED' });
      },
    });
    const run = await runNight(world);
    const asked = world.asked.filter((one) => one.startsWith('export')).length;
    // Two jobs are worked at once.
    expect(asked).toBeLessThan(5);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['exports']).toMatchObject({
      reason: 'stopped early: 3 ledgers in a row failed of the source: SOURCE_UNAUTHORIZED',
    });
    // One that failed at that moment may not be written down yet: then it counts as not asked.
    const { failed, unasked } = run.evidence['exports'] as { failed: number; unasked: number };
    expect([failed + unasked, failed <= asked]).toEqual([8, true]);
    expect(await quarantineCodes(database.pool)).toEqual([]);
  });

  it('goes on where ledgers fail for reasons of their own, however many', async () => {
    await using world = await openWorld({
      export: async () => {
        throw new PermanentError('Cannot export: no such party', { code: 'EXPORT_REFUSED' });
      },
    });
    const run = await runNight(world);
    expect(run.evidence['exports']).toMatchObject({ failed: 3, unasked: 0 });
  });

  it('ends whatever its ledgers say, even what cannot be written down', async () => {
    const evidence = [
      {
        deep: {
          get rows(): string {
            throw new Error('cannot be read');
          },
        },
      },
      { rows: '1', text: 'a\0b \ud800', big: 10n ** 40n, none: undefined, odd: [Number.NaN, () => 1] },
      { rows: '1', text: 'x'.repeat(10 ** 6), meta: { huge: Number.MAX_VALUE } },
    ];
    await using world = await openWorld({
      export: async () => ({ verdict: 'complete', evidence: evidence.shift() ?? {} }),
    });
    const run = await runNight(world);
    expect(run.evidence['exports']).toMatchObject({ failed: 0, unasked: 0 });
    const states = (await nightlyLedgers(database.pool)).map(({ state }) => state);
    expect(states.filter((state) => state === 'due' || state === 'queued')).toEqual([]);
  });

  it('ends where no worker takes part, and says so', async () => {
    await using world = await openWorld({});
    const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
    const limits = { noProgressMs: 1_000, stalledMs: 500 };
    const outcome = await exportDue(run, world.deps, new AbortController().signal, undefined, limits);
    expect(outcome).toMatchObject({
      verdict: 'incomplete',
      evidence: { unasked: 3, reason: expect.stringMatching(/no worker has made progress/) as string },
    });
  });

  it.each([
    ['suspicious', { verdict: 'suspicious', evidence: {} }],
    ['incomplete', { verdict: 'incomplete', evidence: {} }],
  ] as const)('is as %s as the worst of its parts', async (verdict, outcome) => {
    await using world = await openWorld({
      sync: async ({ list }) => (list === 'checkpoints' ? outcome : COMPLETE),
    });
    expect((await runNight(world)).verdict).toBe(verdict);
  });

  it('is incomplete where a list could not be read, and exports the parties that are known', async () => {
    await using world = await openWorld({
      sync: async () => {
        throw new PermanentError('Cannot read the list', { code: 'PAGE_SHAPE' });
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['lists']).toMatchObject({ parties: { error: { code: 'PAGE_SHAPE' } } });
    expect(world.asked.filter((ask) => ask.startsWith('export'))).toHaveLength(3);
  });

  it.each([
    [{ lastMs: 6_000, medianMs: 4_000 }, 'more than five seconds'],
    [{ lastMs: 1_500, medianMs: 120 }, 'ten times the usual'],
  ])('stops asking a source whose lists take %o: %s', async (latency) => {
    await using world = await openWorld({ sourceLatency: async () => latency });
    const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
    const outcome = await exportDue(run, world.deps, new AbortController().signal, new SourceWatch(0));
    expect(outcome).toMatchObject({
      verdict: 'incomplete',
      evidence: { unasked: 3, reason: 'stopped early: the source answers much slower than usual' },
    });
  });

  it('stops asking a source that went away', async () => {
    const many = Array.from({ length: 50 }, (_, index) => (index + 4_097).toString(16).padStart(64, 'a'));
    await addParties(database.pool, many);
    await using world = await openWorld({
      export: async () => {
        throw new UnreachableError('Cannot reach the source', {
          code: 'SOURCE_UNREACHABLE',
          retryAfterMs: 10,
        });
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('incomplete');
    const asked = world.asked.filter((ask) => ask.startsWith('export'));
    // A few were in hand; the most were left for another night.
    expect(new Set(asked).size).toBeLessThan(30);
  });
});

describe('an interrupted nightly run', () => {
  it('goes on with the remaining parties and keeps what was done', async () => {
    const stopAt = Promise.withResolvers<void>();
    let runId: string;
    {
      await using first = await openWorld({
        export: async ({ partyId }, { signal }) => {
          if (partyId === FIRST) return COMPLETE;
          stopAt.resolve();
          return new Promise((_resolve, reject) =>
            signal.addEventListener('abort', () => reject(new Error('stopped'))),
          );
        },
      });
      const run = await first.deps.runs.create({ kind: 'nightly', subject: 'now' });
      runId = run.runId;
      first.work();
      await enqueueRun(run, first.deps);
      await stopAt.promise;
      await waitFor(async () => (await first.deps.nightly.counts(runId, 3)).done === 1, {
        what: 'the first party done',
      });
    }
    // Another process, another queue: as after a lost Redis.
    await using second = await openWorld({});
    second.work();
    await enqueueRun((await second.deps.runs.get(runId)) as Run, second.deps);
    const run = await ended(second, runId);
    expect(run.verdict).toBe('complete');
    expect(run.evidence['exports']).toMatchObject({ parties: 3 });
    expect(second.asked).not.toContain('sync parties');
    expect(second.asked).not.toContain(`export ${FIRST}`);
  });

  it('is one run for each scheduled time, however often the schedule delivers it', async () => {
    await using world = await openWorld({});
    const job = { name: 'nightly', data: { scheduled: true }, dueMs: 1_700_000_000_000, attempt: 1 };
    world.work();
    const signal = new AbortController().signal;
    await handleJob({ ...job, id: 'a' }, world.deps, signal);
    await handleJob({ ...job, id: 'b' }, world.deps, signal);
    const nights = await world.deps.runs.list({ kind: 'nightly', limit: 10 });
    expect(nights.map((night) => [night.scheduleKey, night.verdict])).toEqual([
      ['nightly 2023-11-14T22:13:20.000Z', 'complete'],
    ]);
    expect(world.asked.filter((ask) => ask === 'sync parties')).toHaveLength(1);
  });

  it('audits a list once for each scheduled time, and waits as long as another run syncs it', async () => {
    // More often than a job that ends without a result is delivered.
    let busy = 120;
    const seen: boolean[] = [];
    await using world = await openWorld({
      sync: async ({ full }) => {
        if ((busy -= 1) >= 0)
          throw new RetryableError('Cannot sync yet', { code: 'LIST_BUSY', retryAfterMs: 1 });
        seen.push(full);
        return COMPLETE;
      },
    });
    world.work();
    await world.queues.add('sync', [
      { name: 'sync-list', data: { audit: 'parties' }, jobId: 'audit', priority: 1 },
    ]);
    const audit = await waitFor(
      async () => (await world.deps.runs.list({ kind: 'sync', states: ['done'], limit: 1 }))[0],
      {
        what: 'the audit to end',
      },
    );
    expect([audit.verdict, audit.scheduleKey?.startsWith('audit parties '), seen]).toEqual([
      'complete',
      true,
      [true],
    ]);
  });

  it('can be cancelled', async () => {
    const started = Promise.withResolvers<void>();
    await using world = await openWorld({
      sync: (_request, { signal }) => {
        started.resolve();
        return new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(signal.reason as Error)),
        );
      },
    });
    const run = await world.deps.runs.create({ kind: 'sync', subject: 'parties' });
    world.work();
    await enqueueRun(run, world.deps);
    await started.promise;
    await world.deps.runs.requestCancel(run.runId);
    expect((await ended(world, run.runId)).state).toBe('cancelled');
  });

  it('can be cancelled together with its exports in flight', async () => {
    const started = Promise.withResolvers<void>();
    let isAborted = false;
    await using world = await openWorld({
      export: (_request, { signal }) => {
        started.resolve();
        return new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => {
            isAborted = true;
            reject(signal.reason as Error);
          }),
        );
      },
    });
    const run = await world.deps.runs.create({ kind: 'nightly', subject: 'now' });
    world.work();
    await enqueueRun(run, world.deps);
    await started.promise;
    expect(await world.deps.runs.requestCancel(run.runId)).toBe('running');
    expect((await ended(world, run.runId)).state).toBe('cancelled');
    await waitFor(() => isAborted, { what: 'the export in hand to end' });
    expect(world.asked).not.toContain('load');
    const open = await world.deps.runs.list({ states: ['queued', 'running'], limit: 10 });
    expect(open).toEqual([]);
  });
});

describe('a job', () => {
  const job = { id: 'a', name: 'sync-list', dueMs: 0, attempt: 1 };
  const { signal } = new AbortController();

  it('fails and is tried elsewhere where the mirror does not know its run', async () => {
    await using world = await openWorld({});
    const runId = '01a1fc01-6f2e-749d-96ef-db77d717e20d';
    const deliver = (attempt: number): Promise<void> =>
      handleJob({ ...job, attempt, data: { runId } }, world.deps, signal);
    await expect(deliver(1)).rejects.toMatchObject({ code: 'RUN_UNKNOWN', name: 'RetryableError' });
    await expect(deliver(20)).rejects.toMatchObject({ code: 'RUN_UNKNOWN', name: 'PermanentError' });
    const units = { ...job, name: 'export-party', data: { runId, partyIds: [FIRST] } };
    await expect(handleJob(units, world.deps, signal)).rejects.toMatchObject({ code: 'RUN_UNKNOWN' });
  });

  it('is refused for another source, and the source is recorded with the run', async () => {
    const ours = { id: 'aaaa', url: 'http://a.test/' };
    await using world = await openWorld({}, { source: ours });
    await using other = await openWorld({}, { source: { id: 'bbbb', url: 'http://b.test/' } });
    const run = await world.deps.runs.create({ kind: 'sync', subject: 'parties' });
    expect(run.sourceUrl).toBe('http://a.test/');
    const data = { runId: run.runId };
    await expect(handleJob({ ...job, data }, other.deps, signal)).rejects.toMatchObject({
      code: 'OTHER_SOURCE',
    });
    const scheduled = { ...job, name: 'nightly', data: { scheduled: true, source: 'aaaa' } };
    await expect(handleJob(scheduled, other.deps, signal)).rejects.toMatchObject({ code: 'OTHER_SOURCE' });
    expect([other.asked, (await world.deps.runs.get(run.runId))?.state]).toEqual([[], 'queued']);
    await handleJob({ ...job, data }, world.deps, signal);
    expect((await world.deps.runs.get(run.runId))?.verdict).toBe('complete');
    expect(await recordedSourceUrl(database.pool)).toBe('http://a.test/');
    await forgetSourceUrl(database.pool);
  });

  it('is queued again under another id once it has ended, and not doubled while it waits', async () => {
    await using world = await openWorld({});
    const run = await world.deps.runs.create({ kind: 'sync', subject: 'parties' });
    expect(await enqueueRun(run, world.deps)).toBe(true);
    const first = (await world.deps.runs.get(run.runId)) as Run;
    expect(await enqueueRun(first, world.deps)).toBe(false);
    expect(await world.queues.open('sync')).toBe(1);
    // A job that ended without its run, as after a restored database.
    world.queues.work('sync', 1, async () => undefined);
    await waitFor(async () => (await world.queues.open('sync')) === 0, { what: 'the job to end' });
    expect(await enqueueRun(first, world.deps)).toBe(true);
    expect((await world.deps.runs.get(run.runId))?.jobId).not.toBe(first.jobId);
    await waitFor(async () => (await world.queues.counts('sync'))['completed'] === 2, {
      what: 'the second job',
    });
  });

  it('leaves a run alone that a living process works', async () => {
    await using world = await openWorld({});
    const run = await world.deps.runs.create({ kind: 'sync', subject: 'parties' });
    await world.deps.runs.start(run.runId);
    await handleJob({ ...job, data: { runId: run.runId } }, world.deps, signal);
    expect(world.asked).toEqual([]);
    await silenceRuns(database.pool, 11);
    await handleJob({ ...job, data: { runId: run.runId } }, world.deps, signal);
    expect(world.asked).toEqual(['sync parties']);
  });
});
