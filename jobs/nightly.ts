/**
 * The nightly run: both lists, every due party's new ledger entries, load, lake, verify. Each step finds
 * what an earlier delivery of this job did; the verdict is computed from Postgres, not from the queue.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { RetryableError } from '../src/core/errors.ts';
import { worst, type Outcome, type Verdict } from '../src/core/verdict.ts';
import type { NewRun, Run } from '../src/runs/store/run-store.ts';
import { exportDue } from './nightly-exports.ts';
import { PRIORITY, type JobDefinition, type JobDeps, type ProgressLine, type ReportProgress } from './job.ts';
import { loadSegmentsJob } from './load-segments.ts';
import { reportOf, sendReports } from './notify.ts';
import { slotName } from './slots.ts';
import { walkListJob } from './walk-list.ts';
import { describeError, workRun } from './work-run.ts';

const payload = z.union([
  z.strictObject({ runId: z.uuid() }),
  z.strictObject({ scheduled: z.literal(true) }),
]);

const POLL_MS = 200;
/** A job may have been lost with its queue; queueing it twice is harmless. */
const REQUEUE_AFTER_MS = 60_000;

export const nightlyJob: JobDefinition<z.infer<typeof payload>> = {
  name: 'nightly',
  queue: 'nightly',
  payload,
  handle: async (given, deps, context) => {
    const runId = 'runId' in given ? given.runId : await claimSlot(context.dueMs, deps);
    if (runId === undefined) return;
    await workRun(runId, deps, context, (run, signal) => runNight(run, deps, signal));
    const ended = await deps.runs.get(runId);
    if (ended?.state === 'done') deps.log.info({ report: reportOf(ended) }, 'Nightly report');
    await sendReports(deps, Date.now());
  },
};

/** One run per slot, however often the schedule's job is delivered; none while the last is still going. */
async function claimSlot(dueMs: number, deps: JobDeps): Promise<string | undefined> {
  const slot = slotName(dueMs);
  const going = await deps.runs.list({ kind: 'nightly', states: ['queued', 'running'], limit: 10 });
  const other = going.find((run) => run.slot !== slot);
  if (other !== undefined) {
    deps.log.warn({ slot, runId: other.runId }, 'Nightly run skipped: the last one is still going');
    return undefined;
  }
  const run = await deps.runs.create({ kind: 'nightly', subject: 'scheduled', slot });
  return run.runId;
}

async function runNight(run: Run, deps: JobDeps, signal: AbortSignal): Promise<Outcome> {
  await deps.stages.resumeRebuild(signal);
  const lists = await walkLists(run, deps, signal);
  const isAway = lists.some((list) => list.verdict === 'failed');
  if (isAway)
    return { verdict: 'failed', evidence: { lists: listEvidence(lists), error: firstError(lists) } };
  const exports = await exportDue(run, deps, signal);
  await deps.stages.recordCoverage(signal);
  const onProgress: ReportProgress = (lines) => deps.progress.report(run.runId, lines);
  const loading = { kind: 'load', subject: 'warehouse and lake' } as const;
  const load = await workChild(run, loading, deps, signal, onProgress);
  const verify = await deps.stages.verify({ runId: run.runId, deep: false }, { signal, onProgress });
  const untidy = await tidy(deps, signal);
  const verdicts: Verdict[] = [
    ...lists.map((list) => list.verdict ?? 'failed'),
    exports.verdict,
    load.verdict ?? 'failed',
    verify.verdict,
  ];
  return {
    verdict: worst(verdicts),
    evidence: {
      lists: listEvidence(lists),
      exports: { verdict: exports.verdict, ...exports.evidence },
      load: { verdict: load.verdict, ...load.evidence },
      verify: { verdict: verify.verdict, ...verify.evidence },
      ...(untidy === undefined ? {} : { untidy }),
      source: await deps.costs.ofRun(run.runId),
    },
  };
}

/** What could not be cleared up waits for the next night, and says nothing against what this one brought. */
async function tidy({ stages, log }: JobDeps, signal: AbortSignal): Promise<unknown> {
  try {
    await stages.tidy(signal);
    return undefined;
  } catch (error) {
    signal.throwIfAborted();
    log.warn({ err: error }, 'What dead processes left in the store could not be cleared');
    return describeError(error);
  }
}

/** Side by side; what is told of the night meanwhile are the lines of both. */
async function walkLists(run: Run, deps: JobDeps, signal: AbortSignal): Promise<readonly Run[]> {
  const shown = new Map<string, readonly ProgressLine[]>();
  const show = (list: string, lines: readonly ProgressLine[]): void => {
    shown.set(list, lines);
    deps.progress.report(run.runId, [...shown.values()].flat());
  };
  const walks = ['parties', 'checkpoints'].map((list) =>
    workChild(run, { kind: 'walk', subject: list }, deps, signal, (lines) => show(list, lines)),
  );
  return Promise.all(walks);
}

/** Starts the run below this one, or finds it, and waits until it has its verdict. */
async function workChild(
  parent: Run,
  wanted: Pick<NewRun, 'kind' | 'subject'>,
  deps: JobDeps,
  signal: AbortSignal,
  onProgress: ReportProgress,
): Promise<Run> {
  const child = await deps.runs.create({ ...wanted, parentRunId: parent.runId });
  const job = wanted.kind === 'walk' ? walkListJob : loadSegmentsJob;
  for (let waitedMs = 0; ; waitedMs += POLL_MS) {
    const now = await deps.runs.get(child.runId);
    if (now === undefined)
      throw new RetryableError(`Cannot follow run ${child.runId}: it is gone`, { code: 'RUN_GONE' });
    if (now.state === 'done' || now.state === 'cancelled') {
      onProgress(await deps.progress.read(child.runId));
      return now;
    }
    if (waitedMs % REQUEUE_AFTER_MS === 0) {
      await deps.queue.add(job.queue, [
        {
          name: job.name,
          data: { runId: child.runId },
          jobId: `${child.runId}.${now.attempts}`,
          priority: PRIORITY.nightly,
        },
      ]);
    }
    const lines = await deps.progress.read(child.runId);
    if (lines.length > 0) onProgress(lines);
    await sleep(POLL_MS, undefined, { signal });
  }
}

function listEvidence(lists: readonly Run[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    lists.map((list) => [list.subject, { verdict: list.verdict, runId: list.runId, ...list.evidence }]),
  );
}

function firstError(lists: readonly Run[]): unknown {
  return lists.map((list) => list.evidence['error']).find((error) => error !== undefined);
}
