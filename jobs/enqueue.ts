/** Puts a run's job into its queue; a run that lost its job is put there again. */
import { QUEUE_NAMES, type QueueName } from '../src/queue/queues.ts';
import type { Run } from '../src/runs/store/run-store.ts';
import { exportPartyJob } from './export-party.ts';
import { PRIORITY, type JobDeps } from './job.ts';
import { loadSegmentsJob } from './load-segments.ts';
import { nightlyJob } from './nightly.ts';
import { walkListJob } from './walk-list.ts';

const JOB_BY_KIND = {
  walk: walkListJob,
  export: exportPartyJob,
  load: loadSegmentsJob,
  nightly: nightlyJob,
} as const;

/** A living process renews its run every three seconds. */
const SILENT_MS = 10_000;
/** Not renewed for this long: a worker puts the run into its queue again. */
const STALE_MS = 30_000;
/** Longer than a job waits to be tried again: the run's process is gone. */
const ABANDONED_MS = 75_000;

/** A run of a kind that has no job (verify is worked where it is asked for) is left alone. */
export async function enqueueRun(run: Run, deps: Pick<JobDeps, 'queue'>): Promise<void> {
  if (run.kind === 'verify') return;
  const job = JOB_BY_KIND[run.kind];
  await deps.queue.add(job.queue, [
    {
      name: job.name,
      data: { runId: run.runId },
      jobId: `${run.runId}.${run.attempts}`,
      priority: PRIORITY.onDemand,
    },
  ]);
}

/** What is left of a run when nobody goes on with it. */
const ABANDONED = {
  error: { code: 'ABANDONED', message: 'its process ended before it was done; what it committed stays' },
};

type Books = Pick<JobDeps, 'queue' | 'runs' | 'log'>;

/** For workers: runs whose process or job is gone are queued again; a run that nobody can resume is closed. */
export async function reconcileRuns(deps: Books): Promise<void> {
  for (const run of await deps.runs.stale(STALE_MS)) {
    if (run.kind === 'verify' || (await isOrphan(run, deps))) {
      await deps.runs.finish(run.runId, 'failed', ABANDONED);
    } else if (run.parentRunId === undefined) {
      // Runs below another are its own affair: it queues them again itself.
      deps.log.info({ runId: run.runId, kind: run.kind, subject: run.subject }, 'Run taken up again');
      await enqueueRun(run, deps);
    }
  }
}

/**
 * For commands, where no worker is running: what a dead command left is closed, for nobody waits for it.
 * Nights of the schedule and orders of the read API are left to the worker that will come back.
 */
export async function closeAbandoned(deps: Books): Promise<void> {
  for (const run of await deps.runs.stale(ABANDONED_MS)) {
    const isOwnAccord = run.parentRunId === undefined;
    const isAwaited = run.slot !== undefined || run.params['isOrdered'] === true;
    if (isOwnAccord ? !isAwaited : await isOrphan(run, deps)) {
      await deps.runs.finish(run.runId, 'failed', ABANDONED);
    }
  }
}

/**
 * For a new night, where no worker is running: two would ask the source for the same things.
 * @returns the nights that are going on; those whose process is gone are closed first
 */
export async function goingNights(deps: Books): Promise<readonly Run[]> {
  for (const run of await deps.runs.stale(SILENT_MS)) {
    if (run.kind === 'nightly' || (await isOrphan(run, deps))) {
      await deps.runs.finish(run.runId, 'failed', ABANDONED);
    }
  }
  return deps.runs.list({ kind: 'nightly', states: ['queued', 'running'], limit: 1 });
}

/** The run that it was a part of has ended. */
async function isOrphan(run: Run, deps: Books): Promise<boolean> {
  if (run.parentRunId === undefined) return false;
  const parent = await deps.runs.get(run.parentRunId);
  return parent?.state === 'done' || parent?.state === 'cancelled';
}

/** Only what the command was asked for: a sync must not begin to work an abandoned night. */
export function queuesOf(runs: readonly Run[]): readonly QueueName[] {
  if (runs.some((run) => run.kind === 'nightly')) return QUEUE_NAMES;
  return QUEUE_NAMES.filter((name) => runs.some((run) => run.kind === name));
}
