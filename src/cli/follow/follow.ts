/** Follows runs to their verdicts, and works them here where no worker is running. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { App } from '../../app/app.ts';
import { errorLine, UnreachableError } from '../../core/errors.ts';
import { closeAbandoned, enqueueRun, chooseQueues } from '../../runs/enqueue.ts';
import { isOver } from '../../runs/run-document.ts';
import type { Run } from '../../runs/store/run.ts';
import { UNREACHABLE_MAX_MS } from '../../runs/work-run.ts';
import type { CommandContext } from '../context.ts';
import type { RunView } from '../output/progress.ts';

const POLL_MS = 150;
const CHECK_MS = 2_000;
/** A run that stays silent for so long has lost its process, or its job with its queue. */
const LOST_MS = 10_000;

/** One run, as `followRuns` has it. */
export async function followRun(app: App, run: Run, context: CommandContext): Promise<Run> {
  const [ended] = await followRuns(app, [run], context);
  if (ended === undefined) throw new Error(`run ${run.runId} ended without a record`);
  return ended;
}

/**
 * @returns the runs as they ended, in the order given
 * @throws the signal's reason where the command was told to stop; the runs go on where a worker runs.
 * UnreachableError where the database stays away for a minute
 */
export async function followRuns(
  app: App,
  runs: readonly Run[],
  context: CommandContext,
): Promise<readonly Run[]> {
  for (const run of runs) if (run.state === 'queued') await enqueueRun(run, app.jobs);
  try {
    return await followQueued(app, runs, context);
  } catch (error) {
    for (const { runId } of context.signal.aborted ? runs : []) {
      const now = await app.jobs.runs.get(runId);
      // Nobody waits for what has not begun: it must not run later, by surprise.
      if (now?.state === 'queued') await app.jobs.runs.requestCancel(runId);
    }
    throw error;
  }
}

async function followQueued(
  app: App,
  runs: readonly Run[],
  { progress, log, signal }: CommandContext,
): Promise<readonly Run[]> {
  const followed = runs.map(({ runId }) => ({ runId, view: progress.openView() }));
  const requeued = new Set<string>();
  let checkedAtMs = -Infinity;
  let awaySinceMs: number | undefined;
  try {
    for (;;) {
      const nowMs = performance.now();
      try {
        if (nowMs - checkedAtMs >= CHECK_MS) {
          checkedAtMs = nowMs;
          await lookAfter(app, runs, requeued);
        }
        const ended = await look(app, followed);
        if (ended.length === runs.length) return ended;
        awaySinceMs = undefined;
      } catch (error) {
        // A database that restarts does not end the work, so it does not end the waiting either.
        const isLong = awaySinceMs !== undefined && nowMs - awaySinceMs >= UNREACHABLE_MAX_MS;
        if (!(error instanceof UnreachableError) || isLong) throw error;
        if (awaySinceMs === undefined)
          log.warn({ reason: errorLine(error) }, 'Not reachable now, waiting for it');
        awaySinceMs ??= nowMs;
      }
      await sleep(POLL_MS, undefined, { signal });
    }
  } finally {
    for (const { view } of followed) view.finish();
  }
}

interface Followed {
  readonly runId: string;
  readonly view: RunView;
}

/** @returns those that have ended, in the order given */
async function look(app: App, followed: readonly Followed[]): Promise<readonly Run[]> {
  const found = await Promise.all(
    followed.map(async ({ runId, view }) => {
      const run = await app.jobs.runs.get(runId);
      view.show(await app.jobs.progress.read(runId));
      if (run === undefined || !isOver(run)) return [];
      view.finish();
      return [run];
    }),
  );
  return found.flat();
}

/** Also while following: a worker that died leaves its jobs to us, a lost queue its runs. */
async function lookAfter(app: App, runs: readonly Run[], requeued: Set<string>): Promise<void> {
  // A worker of another source refuses what asks this one.
  const asked = runs.find((run) => run.sourceUrl !== null)?.sourceUrl;
  if (await app.workers.anyAlive(asked)) return;
  app.jobWorker.start(chooseQueues(runs));
  for (const lost of await app.jobs.runs.stale(LOST_MS)) {
    if (requeued.has(lost.runId) || !runs.some((run) => run.runId === lost.runId)) continue;
    // Once: from then on the queue itself tries again.
    requeued.add(lost.runId);
    await enqueueRun(lost, app.jobs);
  }
  await closeAbandoned(app.jobs);
}
