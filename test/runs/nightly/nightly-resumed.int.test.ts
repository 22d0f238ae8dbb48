/** What a nightly run leaves when it is interrupted or cancelled, and how it goes on. */
import { describe, expect, test } from 'vitest';
import { RetryableError } from '../../../src/errors/errors.ts';
import { enqueueRun } from '../../../src/runs/enqueue.ts';
import type { Run } from '../../../src/runs/store/run-store.ts';
import { handleJob } from '../../../src/worker/job-worker.ts';
import { waitFor } from '../../support/wait-for.ts';
import { ended, FIRST, nightlyWorlds } from './nightly-world.ts';
import { COMPLETE } from '../stages-double.ts';

const { database, openWorld } = await nightlyWorlds();

describe('an interrupted nightly run', () => {
  test('goes on with the remaining parties and keeps what was done', async () => {
    const stopAt = Promise.withResolvers<void>();
    let runId: string;
    {
      await using first = await openWorld({
        export: async ({ partyId }, { signal }) => {
          if (partyId === FIRST) return COMPLETE;
          stopAt.resolve();
          return new Promise((_resolve, reject) =>
            signal.addEventListener('abort', () =>
              reject(new Error('stopped')),
            ),
          );
        },
      });
      const run = await first.deps.runs.create({
        kind: 'nightly',
        subject: 'now',
      });
      runId = run.runId;
      first.work();
      await enqueueRun(run, first.deps);
      await stopAt.promise;
      await waitFor(
        async () => (await first.deps.nightly.counts(runId, 3)).done === 1,
        {
          what: 'the first party done',
        },
      );
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

  test('loads nothing before a repeated job has ended that asks once more for a settled ledger', async () => {
    const asked = Promise.withResolvers<void>();
    const order: string[] = [];
    const { pool } = database;
    await using world = await openWorld({
      export: async ({ partyId }, { signal }) => {
        if (partyId !== FIRST) return COMPLETE;
        await pool.query(
          `insert into mirror.exports (party_id, lease_until) values ($1, now() + interval '1 minute')
             on conflict (party_id, asset_id) do update set lease_until = excluded.lease_until`,
          [partyId],
        );
        asked.resolve();
        await new Promise((resolve) =>
          signal.addEventListener('abort', resolve),
        );
        await pool.query(
          `update mirror.exports set lease_until = null where party_id = $1`,
          [partyId],
        );
        order.push('the repeated job ended');
        throw signal.reason;
      },
      load: async () => {
        order.push('load');
        return COMPLETE;
      },
    });
    const { runId } = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    world.work();
    await enqueueRun((await world.deps.runs.get(runId)) as Run, world.deps);
    await asked.promise;
    // As the job does that has taken the place of this one.
    await world.deps.nightly.settle(runId, [
      { partyId: FIRST, state: 'done', outcome: { verdict: 'complete' } },
    ]);
    const run = await ended(world, runId);
    expect(run.verdict).toBe('complete');
    expect(order).toEqual(['the repeated job ended', 'load']);
  });

  test('is one run for each scheduled time, however often the schedule delivers it', async () => {
    await using world = await openWorld({});
    const job = {
      name: 'nightly',
      data: { scheduled: true },
      dueMs: 1_700_000_000_000,
      attempt: 1,
    };
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

  test('audits a list once for each scheduled time, and waits as long as another run syncs it', async () => {
    // More often than a job that ends without a result is delivered.
    let busy = 120;
    const seen: boolean[] = [];
    await using world = await openWorld({
      sync: async ({ full }) => {
        busy -= 1;
        if (busy >= 0)
          throw new RetryableError('Cannot sync yet', {
            code: 'LIST_BUSY',
            retryAfterMs: 1,
          });
        seen.push(full);
        return COMPLETE;
      },
    });
    world.work();
    await world.queues.add('sync', [
      {
        name: 'sync-list',
        data: { audit: 'parties' },
        jobId: 'audit',
        priority: 1,
      },
    ]);
    const audit = await waitFor(
      async () =>
        (
          await world.deps.runs.list({
            kind: 'sync',
            states: ['done'],
            limit: 1,
          })
        )[0],
      {
        what: 'the audit to end',
      },
    );
    expect([
      audit.verdict,
      audit.scheduleKey?.startsWith('audit parties '),
      seen,
    ]).toEqual(['complete', true, [true]]);
  });

  test('can be cancelled', async () => {
    const started = Promise.withResolvers<void>();
    await using world = await openWorld({
      sync: (_request, { signal }) => {
        started.resolve();
        return new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () =>
            reject(signal.reason as Error),
          ),
        );
      },
    });
    const run = await world.deps.runs.create({
      kind: 'sync',
      subject: 'parties',
    });
    world.work();
    await enqueueRun(run, world.deps);
    await started.promise;
    await world.deps.runs.requestCancel(run.runId);
    expect((await ended(world, run.runId)).state).toBe('cancelled');
  });

  test('can be cancelled together with its exports in flight', async () => {
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
    const run = await world.deps.runs.create({
      kind: 'nightly',
      subject: 'now',
    });
    world.work();
    await enqueueRun(run, world.deps);
    await started.promise;
    expect(await world.deps.runs.requestCancel(run.runId)).toBe('running');
    expect((await ended(world, run.runId)).state).toBe('cancelled');
    await waitFor(() => isAborted, { what: 'the export in hand to end' });
    expect(world.asked).not.toContain('load');
    const open = await world.deps.runs.list({
      states: ['queued', 'running'],
      limit: 10,
    });
    expect(open).toEqual([]);
  });
});
