/** Puts a run's job into its queue; a run that lost its job, or its process, is put there again. */
import { randomUUID } from 'node:crypto';
import { QUEUE_NAMES, type QueueName } from '../queue/queues.ts';
import { JOBS, PRIORITY, type JobDeps } from './job.ts';
import { isOver } from './run-document.ts';
import type { Run } from './store/run.ts';

/** A living process renews its run every three seconds. */
const SILENT_MS = 10_000;
/** Not renewed for this long: a worker looks whether the run still has a job. */
const STALE_MS = 30_000;
/** Longer than a job waits to be tried again: the run's process is gone. */
const ABANDONED_MS = 75_000;

type RunDeps = Pick<JobDeps, 'queue' | 'runs' | 'log'>;

/**
 * Queues the run, unless its job is still there. Each job has an id of its own: a queue remembers the ids of ended
 * jobs and takes none of them twice.
 * @returns whether a job was added; a run that has no job is left alone
 */
export async function enqueueRun(
  run: Run,
  { queue, runs }: Pick<JobDeps, 'queue' | 'runs'>,
  priority: number = PRIORITY.onDemand,
): Promise<boolean> {
  if (isWorkedWhereAsked(run)) return false;
  const job = JOBS[run.kind];
  if (run.jobId !== undefined && (await queue.holds(job.queue, run.jobId))) return false;
  const jobId = `${run.runId}.${randomUUID().slice(0, 8)}`;
  await runs.noteJob(run.runId, jobId);
  await queue.add(job.queue, [{ name: job.name, data: { runId: run.runId }, jobId, priority }]);
  return true;
}

/** A command verifies in its own process; what the read API ordered is a worker's. */
function isWorkedWhereAsked({ kind, params }: Run): boolean {
  return kind === 'verify' && params['isOrdered'] !== true;
}

/** What is left of a run when nobody goes on with it. */
const ABANDONED = {
  error: { code: 'ABANDONED', message: 'its process ended before it was done; what it committed stays' },
};

/** For workers: runs whose process or job is gone are queued again; a run that nobody can resume is closed. */
export async function reconcileRuns(deps: RunDeps): Promise<void> {
  for (const run of await deps.runs.stale(STALE_MS)) {
    if (isWorkedWhereAsked(run) || (await isOrphan(run, deps))) {
      deps.log.warn(
        { runId: run.runId, kind: run.kind, subject: run.subject },
        'Run closed: its process is gone',
      );
      await deps.runs.finish(run.runId, 'failed', ABANDONED);
    } else if (run.parentRunId === undefined && (await enqueueRun(run, deps))) {
      // Runs below another are its own affair: it queues them again itself.
      const silentMs = Date.now() - Date.parse(run.heartbeatAt ?? run.queuedAt);
      deps.log.warn(
        { runId: run.runId, kind: run.kind, subject: run.subject, attempts: run.attempts, silentMs },
        'Run queued again: its process or its job is gone',
      );
    }
  }
}

/**
 * For commands, where no worker is running: what a dead command left is closed, for nobody waits for it.
 * Nightly runs of the schedule and orders of the read API are left to the worker that will come back.
 */
export async function closeAbandoned(deps: RunDeps): Promise<void> {
  for (const run of await deps.runs.stale(ABANDONED_MS)) {
    const isOwnAccord = run.parentRunId === undefined;
    const isAwaited = run.scheduleKey !== undefined || run.params['isOrdered'] === true;
    if (isOwnAccord ? !isAwaited : await isOrphan(run, deps)) {
      deps.log.info({ runId: run.runId, kind: run.kind }, 'Run closed: the command that began it is gone');
      await deps.runs.finish(run.runId, 'failed', ABANDONED);
    }
  }
}

/**
 * For a new nightly run: two would ask the source for the same things.
 * @param isAttended a worker is running, which goes on with what a dead process left
 * @returns the nightly run that is going on; without a worker, one whose process is gone is closed first
 */
export async function findOpenNightly(deps: RunDeps, isAttended: boolean): Promise<Run | undefined> {
  for (const run of isAttended ? [] : await deps.runs.stale(SILENT_MS)) {
    if (run.kind === 'nightly' || (await isOrphan(run, deps))) {
      await deps.runs.finish(run.runId, 'failed', ABANDONED);
    }
  }
  const [going] = await deps.runs.list({ kind: 'nightly', states: ['queued', 'running'], limit: 1 });
  return going;
}

/** The run that it was a part of has ended. */
async function isOrphan(run: Run, deps: RunDeps): Promise<boolean> {
  if (run.parentRunId === undefined) return false;
  const parent = await deps.runs.get(run.parentRunId);
  return parent !== undefined && isOver(parent);
}

/** Only what the command was asked for: a sync must not begin to work an abandoned nightly run. */
export function queuesOf(runs: readonly Run[]): readonly QueueName[] {
  if (runs.some((run) => run.kind === 'nightly')) return QUEUE_NAMES;
  // What an export has published is loaded at once.
  return QUEUE_NAMES.filter((name) =>
    runs.some((run) => run.kind === name || (run.kind === 'export' && name === 'load')),
  );
}
