/** The nightly run over a double of the stages: what it asks, what it concludes, what a crash leaves. */
import { beforeEach, describe, expect, it } from 'vitest';
import { enqueueRun } from '../../jobs/enqueue.ts';
import { exportDue } from '../../jobs/nightly-exports.ts';
import { SourceWatch } from '../../jobs/source-watch.ts';
import { PermanentError, RetryableError, UnreachableError } from '../../src/core/errors.ts';
import type { Run } from '../../src/runs/store/run-store.ts';
import { freshDatabase } from '../support/database.ts';
import { waitFor } from '../support/wait-for.ts';
import { COMPLETE, openJobWorld, type JobWorld } from './stages-double.ts';

const database = await freshDatabase({ isMigrated: true });
const PARTIES = [1, 2, 3].map((digit) => String(digit).repeat(64));
const [FIRST = '', SECOND = '', THIRD = ''] = PARTIES;
let worlds = 0;

beforeEach(async () => {
  await database.pool.query('truncate mirror.runs, mirror.nightly_units, mirror.parties cascade');
  for (const id of [...PARTIES, 'network']) {
    await database.pool.query('insert into mirror.parties (party_id, first_epoch) values ($1, 1)', [id]);
  }
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

describe('a night', () => {
  it('walks both lists, exports every party that can be, loads and verifies', async () => {
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
    expect(new Set(world.asked.slice(0, 2))).toEqual(new Set(['walk parties', 'walk checkpoints']));
    expect(new Set(world.asked.slice(2, 5))).toEqual(new Set(PARTIES.map((id) => `export ${id}`)));
    expect(world.asked.slice(5)).toEqual(['load', 'verify']);
  });

  it('asks only the parties that were chosen, and no more than the limit', async () => {
    await using world = await openWorld(
      {},
      { nightlyParties: { kind: 'list', ids: [FIRST, SECOND] }, nightlyExportsMax: 1 },
    );
    const run = await runNight(world);
    expect(run.evidence['exports']).toMatchObject({
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

  it('is whole where the store could not be cleared up, and says so', async () => {
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

  it('asks again where the error may pass', async () => {
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

  it.each([
    ['suspicious', { verdict: 'suspicious', evidence: {} }],
    ['incomplete', { verdict: 'incomplete', evidence: {} }],
  ] as const)('is as %s as the worst of its parts', async (verdict, outcome) => {
    await using world = await openWorld({
      walk: async ({ list }) => (list === 'checkpoints' ? outcome : COMPLETE),
    });
    expect((await runNight(world)).verdict).toBe(verdict);
  });

  it('fails and exports nothing where a list could not be read', async () => {
    await using world = await openWorld({
      walk: async () => {
        throw new PermanentError('Cannot read the list', { code: 'PAGE_SHAPE' });
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('failed');
    expect(run.evidence['error']).toMatchObject({ code: 'PAGE_SHAPE' });
    expect(world.asked.some((ask) => ask.startsWith('export'))).toBe(false);
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
    await database.pool.query(
      `insert into mirror.parties (party_id, first_epoch) select lpad(to_hex(n + 4096), 64, 'a'), 1 from generate_series(1, 50) n`,
    );
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

describe('a night that was interrupted', () => {
  it('goes on with what is left, and keeps what was done', async () => {
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
      await waitFor(async () => (await first.deps.nightly.counts(runId)).done === 1, {
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
    expect(second.asked).not.toContain('walk parties');
    expect(second.asked).not.toContain(`export ${FIRST}`);
  });

  it('is one run a slot, however often the schedule delivers it', async () => {
    await using world = await openWorld({});
    const job = { name: 'nightly', data: { scheduled: true }, dueMs: 1_700_000_000_000, attempt: 1 };
    const { handleJob } = await import('../../jobs/registry.ts');
    world.work();
    const signal = new AbortController().signal;
    await handleJob({ ...job, id: 'a' }, world.deps, signal);
    await handleJob({ ...job, id: 'b' }, world.deps, signal);
    const nights = await world.deps.runs.list({ kind: 'nightly', limit: 10 });
    expect(nights.map((night) => [night.slot, night.verdict])).toEqual([
      ['nightly 2023-11-14T22:13:20.000Z', 'complete'],
    ]);
    expect(world.asked.filter((ask) => ask === 'walk parties')).toHaveLength(1);
  });

  it('audits a list once a slot, and waits as long as another run walks it', async () => {
    let busy = 8;
    const seen: boolean[] = [];
    await using world = await openWorld({
      walk: async ({ full }) => {
        if ((busy -= 1) >= 0)
          throw new RetryableError('Cannot walk yet', { code: 'WALK_BUSY', retryAfterMs: 5 });
        seen.push(full);
        return COMPLETE;
      },
    });
    world.work();
    await world.queues.add('walk', [
      { name: 'walk-list', data: { audit: 'parties' }, jobId: 'audit', priority: 1 },
    ]);
    const audit = await waitFor(
      async () => (await world.deps.runs.list({ kind: 'walk', states: ['done'], limit: 1 }))[0],
      {
        what: 'the audit to end',
      },
    );
    expect([audit.verdict, audit.slot?.startsWith('audit parties '), seen]).toEqual([
      'complete',
      true,
      [true],
    ]);
  });

  it('can be cancelled', async () => {
    const started = Promise.withResolvers<void>();
    await using world = await openWorld({
      walk: (_request, { signal }) => {
        started.resolve();
        return new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(signal.reason as Error)),
        );
      },
    });
    const run = await world.deps.runs.create({ kind: 'walk', subject: 'parties' });
    world.work();
    await enqueueRun(run, world.deps);
    await started.promise;
    await world.deps.runs.requestCancel(run.runId);
    expect((await ended(world, run.runId)).state).toBe('cancelled');
  });
});
