/** Jobs of runs that are unknown, of another source, over or in other hands. */
import { describe, expect, test } from 'vitest';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import type { Run } from '../../src/runs/store/run-store.ts';
import { handleJob } from '../../src/worker/job-worker.ts';
import { silenceRuns } from '../support/mirror-arrange.ts';
import { waitFor } from '../support/wait-for.ts';
import { FIRST, nightlyWorlds } from './nightly/nightly-world.ts';

const { database, openWorld } = await nightlyWorlds();

describe('a job', () => {
  const job = { id: 'a', name: 'sync-list', dueMs: 0, attempt: 1 };
  const { signal } = new AbortController();

  test('fails and is tried elsewhere where the mirror does not know its run', async () => {
    await using world = await openWorld({});
    const runId = '01a1fc01-6f2e-749d-96ef-db77d717e20d';
    const deliver = (attempt: number): Promise<void> =>
      handleJob({ ...job, attempt, data: { runId } }, world.deps, signal);
    await expect(deliver(1)).rejects.toMatchObject({
      code: 'RUN_UNKNOWN',
      name: 'RetryableError',
    });
    await expect(deliver(20)).rejects.toMatchObject({
      code: 'RUN_UNKNOWN',
      name: 'PermanentError',
    });
    const units = {
      ...job,
      name: 'export-party',
      data: { runId, partyIds: [FIRST] },
    };
    await expect(handleJob(units, world.deps, signal)).rejects.toMatchObject({
      code: 'RUN_UNKNOWN',
    });
  });

  test('is refused for another source, and the source is recorded with the run', async () => {
    const ours = { id: 'aaaa', url: 'http://a.test/' };
    await using world = await openWorld({}, { source: ours });
    await using other = await openWorld(
      {},
      { source: { id: 'bbbb', url: 'http://b.test/' } },
    );
    const run = await world.deps.runs.create({
      kind: 'sync',
      subject: 'parties',
    });
    expect(run.sourceUrl).toBe('http://a.test/');
    const data = { runId: run.runId };
    await expect(
      handleJob({ ...job, data }, other.deps, signal),
    ).rejects.toMatchObject({
      code: 'OTHER_SOURCE',
    });
    const scheduled = {
      ...job,
      name: 'nightly',
      data: { scheduled: true, source: 'aaaa' },
    };
    await expect(
      handleJob(scheduled, other.deps, signal),
    ).rejects.toMatchObject({
      code: 'OTHER_SOURCE',
    });
    expect([
      other.asked,
      (await world.deps.runs.get(run.runId))?.state,
    ]).toEqual([[], 'queued']);
    await handleJob({ ...job, data }, world.deps, signal);
    expect((await world.deps.runs.get(run.runId))?.verdict).toBe('complete');
  });

  test('is queued again under another id once it has ended, and not doubled while it waits', async () => {
    await using world = await openWorld({});
    const run = await world.deps.runs.create({
      kind: 'sync',
      subject: 'parties',
    });
    expect(await enqueueRun(run, world.deps)).toBe(true);
    const first = (await world.deps.runs.get(run.runId)) as Run;
    expect(await enqueueRun(first, world.deps)).toBe(false);
    expect(await world.queues.open('sync')).toBe(1);
    // A job that ended without its run, as after a restored database.
    world.queues.work('sync', 1, async () => undefined);
    await waitFor(
      async () => (await world.queues.counts('sync'))['completed'] === 1,
      {
        what: 'the job to end',
      },
    );
    expect(await enqueueRun(first, world.deps)).toBe(true);
    expect((await world.deps.runs.get(run.runId))?.jobId).not.toBe(first.jobId);
    await waitFor(
      async () => (await world.queues.counts('sync'))['completed'] === 2,
      {
        what: 'the second job',
      },
    );
  });

  test('leaves a run alone that a living process works', async () => {
    await using world = await openWorld({});
    const run = await world.deps.runs.create({
      kind: 'sync',
      subject: 'parties',
    });
    await world.deps.runs.start(run.runId);
    await handleJob({ ...job, data: { runId: run.runId } }, world.deps, signal);
    expect(world.asked).toEqual([]);
    await silenceRuns(database.pool, 11);
    await handleJob({ ...job, data: { runId: run.runId } }, world.deps, signal);
    expect(world.asked).toEqual(['sync parties']);
  });
});
