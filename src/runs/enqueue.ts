/**
 * Puts a run's job into its queue; a run that lost its job, or its process, is put there
 * again.
 */
import { randomUUID } from 'node:crypto';
import { RUN_SILENT_MS } from '../concurrency/lease.ts';
import { QUEUE_NAMES, type QueueName } from '../queue/backend.ts';
import { JOBS, PRIORITY, type JobDeps } from './job.ts';
import type { Run } from './store/run-store.ts';

/** Not renewed for this long: a worker looks whether the run still has a job. */
const STALE_MS = 30_000;
/** Longer than a job waits to be tried again: the run's process is gone. */
const ABANDONED_MS = 75_000;

type RunDeps = Pick<JobDeps, 'queue' | 'runs' | 'log'>;

/**
 * Queues the run, unless its job is still there. Each job has an id of its own: a queue
 * remembers the ids of ended jobs and takes none of them twice.
 * @returns whether a job was added; a run that has no job is left alone
 */
export async function enqueueRun(
  run: Run,
  { queue, runs }: Pick<JobDeps, 'queue' | 'runs'>,
  priority: number = PRIORITY.onDemand,
): Promise<boolean> {
  if (isWorkedWhereAsked(run)) return false;
  const job = JOBS[run.kind];
  if (run.jobId !== null && (await queue.holds(job.queue, run.jobId)))
    return false;
  const jobId = `${run.runId}.${randomUUID().slice(0, 8)}`;
  await runs.noteJob(run.runId, jobId);
  await queue.add(job.queue, [
    { name: job.name, data: { runId: run.runId }, jobId, priority },
  ]);
  return true;
}

/** A command verifies in its own process; what the read API ordered is a worker's. */
function isWorkedWhereAsked({ kind, params }: Run): boolean {
  return kind === 'verify' && params['isOrdered'] !== true;
}

/**
 * Closes the runs that nobody has renewed for so long and nobody goes on with: the parts
 * of a run that is over, and those of which `isGivenUp` says so. What they committed
 * stays.
 * @returns the other silent runs
 */
async function closeSilent(
  { runs, log }: RunDeps,
  silentMs: number,
  isGivenUp: (run: Run) => boolean,
) {
  const message =
    'its process ended before it was done; what it committed stays';
  const silent = await runs.stale(silentMs);
  const isEnded = (run: (typeof silent)[number]) =>
    run.isOrphan || isGivenUp(run);
  for (const { runId, kind, subject } of silent.filter(isEnded)) {
    log.warn({ runId, kind, subject }, 'Run closed: its process is gone');
    await runs.finish(runId, 'failed', {
      error: { code: 'ABANDONED', message },
    });
  }
  return silent.filter((run) => !isEnded(run));
}

/**
 * For workers: runs whose process or job is gone are queued again; a run that nobody can
 * resume is closed.
 */
export async function reconcileRuns(deps: RunDeps): Promise<void> {
  for (const run of await closeSilent(deps, STALE_MS, isWorkedWhereAsked)) {
    // Runs below another are its own affair: it queues them again itself.
    if (run.parentRunId !== null || !(await enqueueRun(run, deps))) continue;
    const { runId, kind, subject, attempts, heartbeatAt, queuedAt } = run;
    const silentMs = Date.now() - Date.parse(heartbeatAt ?? queuedAt);
    const facts = { runId, kind, subject, attempts, silentMs };
    deps.log.warn(facts, 'Run queued again: its process or its job is gone');
  }
}

/**
 * For commands, where no worker is running: what a dead command left is closed, for
 * nobody waits for it. Nightly runs of the schedule and orders of the read API are left
 * to the worker that will come back.
 */
export async function closeAbandoned(deps: RunDeps): Promise<void> {
  const isCommands = ({ parentRunId, scheduleKey, params }: Run) =>
    parentRunId === null &&
    scheduleKey === null &&
    params['isOrdered'] !== true;
  await closeSilent(deps, ABANDONED_MS, isCommands);
}

/**
 * For a new nightly run: two would ask the source for the same things.
 * @param isAttended a worker is running, which goes on with what a dead process left
 * @returns the nightly run that is going on; without a worker, one whose process is gone
 *   is closed first
 */
export async function findOpenNightly(
  deps: RunDeps,
  isAttended: boolean,
): Promise<Run | undefined> {
  if (!isAttended)
    await closeSilent(deps, RUN_SILENT_MS, ({ kind }) => kind === 'nightly');
  return deps.runs.findNightly();
}

/**
 * Only what the command was asked for: a sync must not begin to work an abandoned nightly
 * run.
 */
export function chooseQueues({ kind }: Run): readonly QueueName[] {
  if (kind === 'nightly') return QUEUE_NAMES;
  // What an export has published is loaded at once.
  return QUEUE_NAMES.filter(
    (name) => name === kind || (kind === 'export' && name === 'load'),
  );
}
