/**
 * Starts runs and follows them to their verdicts. If no worker is running, this process
 * carries them out itself.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { App } from '../app/app.ts';
import { untilReachable } from '../app/base.ts';
import {
  closeAbandoned,
  chooseQueues,
  enqueueRun,
  findOpenNightly,
} from '../runs/enqueue.ts';
import type { StageCall, VerifyRequest } from '../runs/job.ts';
import { isOver } from '../runs/run-document.ts';
import type { NewRun, Run } from '../runs/store/run-store.ts';
import { workRun } from '../runs/work-run.ts';
import type { CommandContext } from './context.ts';
import { COMMAND } from './command-name.ts';

const POLL_MS = 150;
const CHECK_MS = 2_000;
/**
 * How long a run may go without a heartbeat. After that, its process has crashed or its
 * job was lost with the queue.
 */
const LOST_MS = 10_000;

/**
 * Joins an open run that does the same work, even if another client requested it, or
 * creates one.
 */
export async function joinOrCreate(
  app: App,
  wanted: NewRun,
): Promise<{ run: Run; isJoined: boolean }> {
  const { run, found } = await app.jobs.runs.order(wanted);
  const { runId, kind, subject } = run;
  if (found === 'open')
    app.log.info({ runId, kind, subject }, 'Following an equal run');
  return { run, isJoined: found === 'open' };
}

/**
 * Waits until no other nightly run is open, then starts a new one: two concurrent nightly
 * runs would request the same data from the source. Nothing is queued during the wait.
 */
export async function startNight(
  app: App,
  subject: string,
  context: CommandContext,
): Promise<Run> {
  const { jobs, workers } = app;
  for (let told = ''; ;) {
    const going = await findOpenNightly(
      jobs,
      await workers.anyAlive(jobs.source?.url),
    );
    if (going === undefined) {
      const { run, found } = await jobs.runs.order({
        kind: 'nightly',
        subject,
      });
      if (found === 'none') return run;
    } else if (told !== going.runId) {
      told = going.runId;
      const since = going.startedAt ?? going.queuedAt;
      const facts = {
        runId: told,
        subject: going.subject,
        since,
        endedBy: `${COMMAND} cancel ${told}`,
      };
      context.notices.warn(facts, 'Waiting for another nightly run');
    }
    await sleep(POLL_MS, undefined, { signal: context.signal });
  }
}

/**
 * Follows a run until it has ended.
 * @returns the run in its final state
 * @throws the signal's reason if the command is stopped; if a worker is running, it
 *   continues the run
 * @throws UnreachableError if the database is unreachable for a minute
 */
export async function followRun(
  app: App,
  run: Run,
  context: CommandContext,
): Promise<Run> {
  const { jobs, jobWorker, workers } = app;
  const { runId } = run;
  if (run.state === 'queued') await enqueueRun(run, jobs);
  const view = context.progress.openView();
  let checkedAtMs = -Infinity;
  const look = async () => {
    if (performance.now() - checkedAtMs >= CHECK_MS) {
      checkedAtMs = performance.now();
      await lookAfter();
    }
    const found = await jobs.runs.get(runId);
    view.show(await jobs.progress.read(runId));
    return found;
  };
  /**
   * Called repeatedly while following, because this process takes over if the worker
   * crashes, and requeues runs whose jobs were lost with the queue.
   */
  const lookAfter = async () => {
    // Only a worker for the same source counts, because a worker for a different source
    // refuses this run's jobs.
    if (await workers.anyAlive(run.sourceUrl)) return;
    jobWorker.start(chooseQueues(run));
    for (const lost of await jobs.runs.stale(LOST_MS))
      if (lost.runId === runId) await enqueueRun(lost, jobs);
    await closeAbandoned(jobs);
  };
  try {
    for (;;) {
      // A database restart does not end the run, so it must not end the wait either.
      const found = await untilReachable('database', context, look);
      if (found !== undefined && isOver(found)) {
        view.finish(found.verdict ?? found.state);
        return found;
      }
      await untilNextLook(app, runId, context.signal);
    }
  } catch (error) {
    view.finish(howFollowingEnded(context.signal));
    // No command is waiting for this run any more. It has not started, and must not start
    // unexpectedly later.
    if (
      context.signal.aborted &&
      (await jobs.runs.get(runId))?.state === 'queued'
    )
      await jobs.runs.requestCancel(runId);
    throw error;
  }
}

/**
 * Waits until a run is to be looked at again: after some time, or as soon as this process
 * has done its job.
 * @throws AbortError if the command is stopped
 */
async function untilNextLook(
  { jobWorker }: App,
  runId: string,
  signal: AbortSignal,
): Promise<void> {
  const looked = new AbortController();
  const waiting = AbortSignal.any([signal, looked.signal]);
  try {
    await Promise.race([
      sleep(POLL_MS, undefined, { signal: waiting }),
      jobWorker.endOfJob(runId, waiting),
    ]);
  } finally {
    looked.abort();
  }
}

/** Returns the outcome to show for a run that this command stops following. */
function howFollowingEnded({ aborted: isStopped }: AbortSignal): string {
  return isStopped ? 'stopped' : 'no longer followed';
}

/**
 * Runs the verification in this process, because it does not need the source and no other
 * process needs to be able to take it over.
 * @throws the signal's reason if the command is stopped; the run is then cancelled
 */
export async function verifyHere(
  { jobs, workers }: App,
  request: Pick<VerifyRequest, 'deep' | 'against' | 'isLossAccepted'>,
  { signal, progress }: Pick<CommandContext, 'signal' | 'progress'>,
): Promise<Run> {
  if (!(await workers.anyAlive())) await closeAbandoned(jobs);
  const { runs, stages } = jobs;
  const run = await runs.create({
    kind: 'verify',
    subject: request.deep ? 'deep' : 'sums',
  });
  const { runId } = run;
  const view = progress.openView();
  const work = (_run: Run, call: StageCall) => {
    const onProgress: StageCall['onProgress'] = (lines) => {
      view.show(lines);
      call.onProgress(lines);
    };
    return stages.verify(
      { runId, scope: 'whole', ...request },
      { ...call, onProgress },
    );
  };
  try {
    await workRun(
      runId,
      jobs,
      { signal, dueMs: Date.now(), attempt: Infinity },
      work,
    );
  } catch (error) {
    view.finish(howFollowingEnded(signal));
    if (signal.aborted) await runs.markCancelled(runId);
    throw error;
  }
  const ended = (await runs.get(runId)) ?? run;
  view.finish(ended.verdict ?? ended.state);
  return ended;
}
