/**
 * The nightly run: both lists, every due party's new ledger entries, load, lake, verify. Each step finds
 * what an earlier delivery of its job did; the verdict is computed from Postgres, not from the queue.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { PermanentError, RetryableError } from '../../core/errors.ts';
import { worst, type Outcome, type Verdict } from '../../core/verdict.ts';
import { enqueueRun } from '../enqueue.ts';
import { exportDue } from './nightly-exports.ts';
import { PRIORITY, type JobDeps, type ProgressLine, type ReportProgress } from '../job.ts';
import { nextScheduledMs } from './schedule.ts';
import type { Completeness } from '../store/completeness.ts';
import type { NewRun, Run } from '../store/run.ts';
import { describeError } from '../work-run.ts';

const POLL_MS = 200;
/** A job may have been lost with its queue: the queue is asked. */
const LOOK_AFTER_MS = 30_000;
/** A part that nobody has begun, or renewed, for this long: no worker takes it. */
const NO_PROGRESS_MS = 600_000;
const HOUR_MS = 3_600_000;

export async function runNightly(run: Run, deps: JobDeps, signal: AbortSignal): Promise<Outcome> {
  await tryStore(deps, signal);
  await deps.stages.catchUpWithStore(signal);
  const lists = await syncLists(run, deps, signal);
  // Exports need parties, and those that are known will do: only a source that nobody reaches ends the run here.
  if (lists.every(isUnreached)) {
    const failed = {
      verdict: 'failed',
      evidence: { lists: listEvidence(lists), error: firstError(lists) },
    } as const;
    return withReport(run, failed, await deps.completeness(), deps, signal);
  }
  const exports = await exportDue(run, deps, signal, undefined, { untilMs: askUntilMs(run, deps) });
  deps.log.info({ runId: run.runId, verdict: exports.verdict, ...exports.evidence }, 'Exports ended');
  const merged = await deps.stages.mergeSegments(run.runId, signal);
  deps.log.info({ runId: run.runId, ...merged }, 'Segments merged');
  await deps.stages.recordCoverage(signal);
  const onProgress: ReportProgress = (lines) => deps.progress.report(run.runId, lines);
  const loading = { kind: 'load', subject: 'warehouse and lake' } as const;
  const load = await workChild(run, loading, deps, signal, onProgress);
  const verify = await deps.stages.verify(
    { runId: run.runId, deep: false, scope: 'nightly' },
    { signal, onProgress },
  );
  deps.log.info(
    { runId: run.runId, verdict: verify.verdict, checked: verify.evidence['checked'] },
    'Verified',
  );
  const untidy = await tidy(deps, signal);
  const covers = await deps.completeness();
  const verdicts: Verdict[] = [
    ...lists.map(({ verdict }) => (verdict === undefined || verdict === 'failed' ? 'incomplete' : verdict)),
    exports.verdict,
    load.verdict ?? 'failed',
    verify.verdict,
    isCovered(covers) ? 'complete' : 'incomplete',
  ];
  const outcome = {
    verdict: worst(verdicts),
    evidence: {
      covers: { ...covers },
      lists: listEvidence(lists),
      exports: { verdict: exports.verdict, ...exports.evidence },
      merged,
      load: { verdict: load.verdict, ...load.evidence },
      verify: { verdict: verify.verdict, ...verify.evidence },
      ...(untidy === undefined ? {} : { untidy }),
      source: await deps.costs.ofRun(run.runId),
    },
  };
  return withReport(run, outcome, covers, deps, signal);
}

/** Of a night that ended by an error, a report as well: what was held then, and why it ended. */
export async function reportFailedNightly(
  run: Run,
  outcome: Outcome,
  deps: JobDeps,
  signal: AbortSignal,
): Promise<Outcome> {
  return deps.stages.publishReport(run, outcome, await deps.completeness(), signal);
}

/** A report that the store refuses is told; what may pass is tried again with the run. */
async function withReport(
  run: Run,
  outcome: Outcome,
  covers: Completeness,
  { stages, log }: JobDeps,
  signal: AbortSignal,
): Promise<Outcome> {
  try {
    return await stages.publishReport(run, outcome, covers, signal);
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    log.warn({ err: error, runId: run.runId }, 'The report of the nightly run could not be published');
    const verdict = worst([outcome.verdict, 'incomplete']);
    return { verdict, evidence: { ...outcome.evidence, reportProblem: describeError(error) } };
  }
}

/** Before the source is asked for anything: what it sends must have somewhere to go. */
async function tryStore({ stages, log }: JobDeps, signal: AbortSignal): Promise<void> {
  const { isWrittenOnce, detail } = await stages.tryStore(signal);
  if (!isWrittenOnce) log.warn({ store: detail }, 'The object store keeps no second writer out');
}

function isUnreached({ verdict, evidence }: Run): boolean {
  const { error } = evidence;
  const isAway =
    typeof error === 'object' && error !== null && 'unreachable' in error && error.unreachable === true;
  return verdict === 'failed' && isAway;
}

function isCovered({ covered, wanted, openDoubts }: Completeness): boolean {
  return covered >= wanted && openDoubts === 0;
}

/** Asking ends with the window, or early enough for the rest of the run before the next scheduled time. */
function askUntilMs(run: Run, { nightlyWindowMs, schedule }: JobDeps): number {
  const startedMs = Date.parse(run.startedAt ?? run.queuedAt);
  if (nightlyWindowMs !== undefined) return startedMs + nightlyWindowMs;
  const nextMs = nextScheduledMs(schedule, startedMs);
  // Where the times are closer than that, half of what lies between them is for asking.
  return Math.max(nextMs - HOUR_MS, startedMs + (nextMs - startedMs) / 2);
}

/** What could not be cleared up waits for the next run, and says nothing against what this one brought. */
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

/** Side by side; what is told of the run meanwhile are the lines of both. */
async function syncLists(run: Run, deps: JobDeps, signal: AbortSignal): Promise<readonly Run[]> {
  const shown = new Map<string, readonly ProgressLine[]>();
  const show = (list: string, lines: readonly ProgressLine[]): void => {
    shown.set(list, lines);
    deps.progress.report(run.runId, [...shown.values()].flat());
  };
  const syncs = ['parties', 'checkpoints'].map((list) =>
    workChild(run, { kind: 'sync', subject: list }, deps, signal, (lines) => show(list, lines)),
  );
  return Promise.all(syncs);
}

/** Starts the run below this one, or finds it, and waits until it has its verdict, or until nobody works it. */
async function workChild(
  parent: Run,
  wanted: Pick<NewRun, 'kind' | 'subject'>,
  deps: JobDeps,
  signal: AbortSignal,
  onProgress: ReportProgress,
): Promise<Run> {
  const child = await deps.runs.create({ ...wanted, parentRunId: parent.runId });
  let seen = '';
  let movedAtMs = performance.now();
  for (let lookedAtMs = -Infinity; ;) {
    const now = await deps.runs.get(child.runId);
    if (now === undefined)
      throw new RetryableError(`Cannot follow run ${child.runId}: it is gone`, { code: 'RUN_GONE' });
    if (now.state === 'done' || now.state === 'cancelled') {
      onProgress(await deps.progress.read(child.runId));
      return now;
    }
    const sign = `${now.attempts} ${now.heartbeatAt}`;
    if (sign !== seen) movedAtMs = performance.now();
    seen = sign;
    if (performance.now() - movedAtMs > NO_PROGRESS_MS) await giveUp(now, deps);
    if (performance.now() - lookedAtMs > LOOK_AFTER_MS) {
      lookedAtMs = performance.now();
      await enqueueRun(now, deps, PRIORITY.nightly);
    }
    const lines = await deps.progress.read(child.runId);
    if (lines.length > 0) onProgress(lines);
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function giveUp(child: Run, { runs, log }: JobDeps): Promise<void> {
  const error = {
    code: 'NO_PROGRESS',
    message: 'no worker has taken it for long; look whether workers are running',
  };
  log.warn(
    { runId: child.runId, kind: child.kind, subject: child.subject },
    'Part of the nightly run given up: nobody works it',
  );
  await runs.finish(child.runId, 'incomplete', { error });
}

function listEvidence(lists: readonly Run[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    lists.map((list) => [list.subject, { verdict: list.verdict, runId: list.runId, ...list.evidence }]),
  );
}

function firstError(lists: readonly Run[]): unknown {
  return lists.map((list) => list.evidence['error']).find((error) => error !== undefined);
}
