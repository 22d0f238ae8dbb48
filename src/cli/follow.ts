/** Starts runs and follows them to their verdicts; works them here where no worker is running. */
import { setTimeout as sleep } from 'node:timers/promises';
import { closeAbandoned, enqueueRun, findOpenNightly, queuesOf } from '../runs/enqueue.ts';
import type { ProgressLine, ReportProgress, VerifyRequest } from '../runs/job.ts';
import { UNREACHABLE_MAX_MS, workRun } from '../runs/work-run.ts';
import type { App } from '../app/app.ts';
import { errorLine, UnreachableError } from '../core/errors.ts';
import type { NewRun, Run } from '../runs/store/run.ts';
import type { CommandContext } from './context.ts';
import type { ProgressUpdate } from './output/progress.ts';

const POLL_MS = 150;
const CHECK_MS = 2_000;
/** A run that stays silent for so long has lost its process, or its job with its queue. */
const LOST_MS = 10_000;

/** A run that does the same already, of whoever's making, or a new one. */
export async function joinOrCreate(app: App, wanted: NewRun): Promise<{ run: Run; isJoined: boolean }> {
  const equal = await app.jobs.runs.findOpen(wanted);
  if (equal === undefined) return { run: await app.jobs.runs.create(wanted), isJoined: false };
  app.log.info({ runId: equal.runId, kind: equal.kind, subject: equal.subject }, 'Following an equal run');
  return { run: equal, isJoined: true };
}

/**
 * A new nightly run, once none is going: two would ask the source for the same things. Nothing is queued while it waits.
 */
export async function startNight(app: App, subject: string, context: CommandContext): Promise<Run> {
  const { log, signal, stderr } = context;
  for (let told = ''; ;) {
    const isAttended = await app.workers.anyAlive(app.jobs.source?.url);
    const going = await findOpenNightly(app.jobs, isAttended);
    if (going === undefined) {
      const { run, found } = await app.jobs.runs.order({ kind: 'nightly', subject });
      if (found === 'none') return run;
    } else if (told !== going.runId) {
      told = going.runId;
      log.info(
        { runId: going.runId, subject: going.subject, since: going.startedAt ?? going.queuedAt },
        'Waiting for another nightly run',
      );
      if (stderr.isTTY === true)
        stderr.write(
          `Waiting for nightly run ${going.runId} to end; \`ledger-mirror cancel ${going.runId}\` ends it\n`,
        );
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}

/**
 * Verifies in this process: that asks no source, and no other process needs to take it over.
 * @throws the signal's reason where the command was told to stop; the run is cancelled then
 */
export async function verifyHere(
  app: App,
  { isDeep, against }: { readonly isDeep: boolean; readonly against?: VerifyRequest['against'] },
  { signal }: Pick<CommandContext, 'signal'>,
  onProgress: ReportProgress,
): Promise<Run> {
  if (!(await app.workers.anyAlive())) await closeAbandoned(app.jobs);
  const run = await app.jobs.runs.create({ kind: 'verify', subject: isDeep ? 'deep' : 'sums' });
  const context = { signal, dueMs: Date.now(), attempt: Infinity };
  try {
    await workRun(run.runId, app.jobs, context, (_run, either) =>
      app.jobs.stages.verify(
        { runId: run.runId, deep: isDeep, scope: 'whole', against },
        {
          signal: either,
          onProgress: (lines) => {
            onProgress(lines);
            app.jobs.progress.report(run.runId, lines);
          },
        },
      ),
    );
  } catch (error) {
    if (signal.aborted) await app.jobs.runs.markCancelled(run.runId);
    throw error;
  }
  return (await app.jobs.runs.get(run.runId)) ?? run;
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
    // Nobody waits for what has not begun: it must not run later, by surprise.
    if (context.signal.aborted) await cancelQueued(app, runs);
    throw error;
  }
}

async function cancelQueued(app: App, runs: readonly Run[]): Promise<void> {
  for (const { runId } of runs) {
    const now = await app.jobs.runs.get(runId);
    if (now?.state === 'queued') await app.jobs.runs.requestCancel(runId);
  }
}

async function followQueued(
  app: App,
  runs: readonly Run[],
  context: CommandContext,
): Promise<readonly Run[]> {
  const view = new RunView(context);
  const requeued = new Set<string>();
  let awaySinceMs: number | undefined;
  try {
    for (let checkedAtMs = -Infinity; ;) {
      try {
        if (performance.now() - checkedAtMs >= CHECK_MS) {
          checkedAtMs = performance.now();
          await lookAfter(app, runs, requeued);
        }
        const ended = await look(app, runs, view);
        if (ended.length === runs.length) return ended;
        awaySinceMs = undefined;
      } catch (error) {
        // A database that restarts does not end the work, so it does not end the waiting either.
        const isNew = awaySinceMs === undefined;
        awaySinceMs ??= performance.now();
        const isOver = performance.now() - awaySinceMs >= UNREACHABLE_MAX_MS;
        if (!(error instanceof UnreachableError) || isOver) throw error;
        if (isNew) context.log.warn({ reason: errorLine(error) }, 'Not reachable now, waiting for it');
      }
      await sleep(POLL_MS, undefined, { signal: context.signal });
    }
  } finally {
    for (const run of runs) view.finish(run);
  }
}

/** @returns those that have ended, in the order given */
async function look(app: App, runs: readonly Run[], view: RunView): Promise<readonly Run[]> {
  const now = await Promise.all(runs.map((run) => app.jobs.runs.get(run.runId)));
  for (const run of runs) view.show(run, await app.jobs.progress.read(run.runId));
  const ended = now.filter((run): run is Run => run?.state === 'done' || run?.state === 'cancelled');
  for (const run of ended) view.finish(run);
  return ended;
}

/** Also while following: a worker that died leaves its jobs to us, a lost queue its runs. */
async function lookAfter(app: App, runs: readonly Run[], requeued: Set<string>): Promise<void> {
  // A worker of another source refuses what asks this one.
  const asked = runs.find((run) => run.sourceUrl !== undefined)?.sourceUrl;
  if (await app.workers.anyAlive(asked)) return;
  app.jobWorker.start(queuesOf(runs));
  for (const lost of await app.jobs.runs.stale(LOST_MS)) {
    if (requeued.has(lost.runId) || !runs.some((run) => run.runId === lost.runId)) continue;
    // Once: from then on the queue itself tries again.
    requeued.add(lost.runId);
    await enqueueRun(lost, app.jobs);
  }
  await closeAbandoned(app.jobs);
}

interface ShownLine {
  readonly task: ReturnType<CommandContext['progress']['task']>;
  readonly isPart: boolean;
}

/** Keeps one progress task for each line that a run reports; a line that is reported no more has ended. */
class RunView {
  readonly #context: CommandContext;
  readonly #tasks = new Map<string, Map<string, ShownLine>>();
  readonly #ended = new Set<string>();

  constructor(context: CommandContext) {
    this.#context = context;
  }

  /** @param lines none where nothing is known at the moment: what was shown stays */
  show({ runId }: Run, lines: readonly ProgressLine[]): void {
    if (lines.length === 0 || this.#ended.has(runId)) return;
    const shown = this.#tasks.get(runId) ?? new Map<string, ShownLine>();
    this.#tasks.set(runId, shown);
    for (const [label, ended] of shown) {
      if (lines.some((line) => line.label === label)) continue;
      shown.delete(label);
      end(ended);
    }
    for (const line of lines) {
      const known = shown.get(line.label);
      const task = known?.task ?? this.#context.progress.task(line.label);
      shown.set(line.label, { task, isPart: line.isPart === true });
      task.update(updateOf(line));
    }
  }

  /** The run is over, and so is every line of it. */
  finish({ runId }: Run): void {
    if (this.#ended.has(runId)) return;
    this.#ended.add(runId);
    for (const ended of this.#tasks.get(runId)?.values() ?? []) end(ended);
  }
}

function end({ task, isPart }: ShownLine): void {
  if (isPart) task.drop();
  else task.finish();
}

export function updateOf(line: ProgressLine): ProgressUpdate {
  return {
    done: BigInt(line.done),
    unit: line.unit,
    ...(line.total === undefined ? {} : { total: BigInt(line.total) }),
    ...(line.note === undefined ? {} : { note: line.note }),
  };
}
