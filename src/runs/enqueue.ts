/**
 * Puts a run's job into its queue, and queues it again if the run lost its job or its
 * process.
 */
import { randomUUID } from 'node:crypto';
import { RUN_SILENT_MS } from '../concurrency/lease.ts';
import { QUEUE_NAMES, type QueueName } from '../queue/backend.ts';
import { JOBS, PRIORITY, type JobDeps } from './job.ts';
import type { Run } from './store/run-store.ts';

/**
 * If a run's heartbeat is older than this, a worker checks whether the run still has a
 * job.
 */
const STALE_MS = 30_000;
/**
 * A run whose heartbeat is older than this has lost its process. Longer than any wait
 * before a job is retried.
 */
const ABANDONED_MS = 75_000;

type RunDeps = Pick<JobDeps, 'queue' | 'runs' | 'log'>;

/**
 * Queues the run, unless its job is still there. Each job gets a new id, because a queue
 * remembers the ids of finished jobs and rejects duplicates.
 * @returns whether a job was added; false for a run that its own process carries out
 *   without a job
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

/**
 * Whether the process that created the run also carries it out. A command verifies in
 * its own process; a worker carries out a verification that was requested through the
 * read API.
 */
function isWorkedWhereAsked({ kind, params }: Run): boolean {
  return kind === 'verify' && params['isOrdered'] !== true;
}

/**
 * Closes the runs whose heartbeat is older than `silentMs` and that no process will
 * resume: the parts of a run that has ended, and runs for which `isGivenUp` returns true.
 * What they committed is kept.
 * @returns the other silent runs
 */
async function closeSilent(
  { runs, log }: RunDeps,
  silentMs: number,
  isGivenUp: (run: Run) => boolean,
) {
  const message =
    'its process ended before the run finished; what it committed stays';
  const silent = await runs.stale(silentMs);
  const isEnded = (run: (typeof silent)[number]) =>
    run.isOrphan || isGivenUp(run);
  for (const { runId, kind, subject } of silent.filter(isEnded)) {
    log.warn({ runId, kind, subject }, 'Run ended: its process is gone');
    await runs.finish(runId, 'failed', {
      error: { code: 'ABANDONED', message },
    });
  }
  return silent.filter((run) => !isEnded(run));
}

/**
 * Used by workers. Requeues runs whose process or job is gone, and closes those that no
 * process can resume.
 */
export async function reconcileRuns(deps: RunDeps): Promise<void> {
  for (const run of await closeSilent(deps, STALE_MS, isWorkedWhereAsked)) {
    // A parent run queues its parts again itself.
    if (run.parentRunId !== null || !(await enqueueRun(run, deps))) continue;
    const { runId, kind, subject, attempts, heartbeatAt, queuedAt } = run;
    const silentMs = Date.now() - Date.parse(heartbeatAt ?? queuedAt);
    const facts = { runId, kind, subject, attempts, silentMs };
    deps.log.warn(facts, 'Run queued again: its process or its job is gone');
  }
}

/**
 * Used by commands when no worker is running. Closes the runs left behind by a command
 * that crashed, because no process will resume them. Scheduled nightly runs and requests
 * from the read API are left to the next worker.
 */
export async function closeAbandoned(deps: RunDeps): Promise<void> {
  const isCommands = ({ parentRunId, scheduleKey, params }: Run) =>
    parentRunId === null &&
    scheduleKey === null &&
    params['isOrdered'] !== true;
  await closeSilent(deps, ABANDONED_MS, isCommands);
}

/**
 * Finds the nightly run in progress, because two at once would request the same data from
 * the source.
 * @param isAttended whether a worker is running that will resume the work of a crashed
 *   process
 * @returns the unfinished nightly run; without a worker, a run whose process is gone is
 *   closed first
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
 * Returns the queues that a command takes jobs from: only those that its own run needs. A
 * sync, for example, must not pick up an abandoned nightly run.
 */
export function chooseQueues({ kind }: Run): readonly QueueName[] {
  if (kind === 'nightly') return QUEUE_NAMES;
  // The segments that an export publishes are loaded immediately.
  return QUEUE_NAMES.filter(
    (name) => name === kind || (kind === 'export' && name === 'load'),
  );
}
