/**
 * The nightly run: both lists, every due party's new ledger entries, load, lake, verify. Each step finds
 * what an earlier delivery of its job did; the verdict is computed from Postgres, not from the queue.
 */
import { PermanentError } from '../../core/errors.ts';
import { worst, type Verdict, type VerdictWithEvidence } from '../../core/verdict.ts';
import { exportDue } from './nightly-exports.ts';
import type { JobDeps, StageCall } from '../job.ts';
import type { ProgressLine } from '../progress/progress-line.ts';
import { workChild } from './child-run.ts';
import { nextScheduledMs } from './schedule.ts';
import type { Completeness } from '../store/completeness.ts';
import type { Run } from '../store/run.ts';
import { errorIn } from '../run-document.ts';
import { describeError } from '../work-run.ts';

const HOUR_MS = 3_600_000;

/** Takes over what an earlier delivery of the run's job did. */
export async function runNightly(run: Run, deps: JobDeps, call: StageCall): Promise<VerdictWithEvidence> {
  const { stages, log } = deps;
  const { signal } = call;
  const { runId } = run;
  await tryStore(deps, signal);
  await stages.catchUpWithStore(signal);
  const lists = await syncLists(run, deps, signal);
  // Exports need parties, and those that are known will do: only a source that nobody reaches ends the run.
  if (lists.every(isUnreached)) {
    const evidence = { lists: listEvidence(lists), error: firstError(lists) };
    return publishReport(run, { verdict: 'failed', evidence }, await deps.completeness(), deps, signal);
  }
  const exports = await exportDue(run, deps, signal, undefined, { untilMs: askUntilMs(run, deps) });
  log.info({ runId, verdict: exports.verdict, ...exports.evidence }, 'Exports ended');
  const merged = await mergeOnce(run, deps, signal);
  await stages.recordCoverage(signal);
  const wanted = { kind: 'load', subject: 'warehouse and lake' } as const;
  const load = await workChild(run, wanted, deps, call);
  const verify = await stages.verify({ runId, deep: false, scope: 'nightly' }, call);
  log.info({ runId, verdict: verify.verdict, checked: verify.evidence['checked'] }, 'Verified');
  const untidy = await tidy(deps, signal);
  const covers = await deps.completeness();
  const verdicts: Verdict[] = [
    ...lists.map(({ verdict }) => (verdict === null || verdict === 'failed' ? 'incomplete' : verdict)),
    exports.verdict,
    load.verdict ?? 'failed',
    verify.verdict,
    isCovered(covers) ? 'complete' : 'incomplete',
  ];
  const evidence = {
    covers: { ...covers },
    lists: listEvidence(lists),
    exports: { verdict: exports.verdict, ...exports.evidence },
    merged,
    load: { verdict: load.verdict, ...load.evidence },
    verify: { verdict: verify.verdict, ...verify.evidence },
    ...(untidy === undefined ? {} : { untidy }),
    source: await deps.costs.ofRun(runId),
  };
  return publishReport(run, { verdict: worst(verdicts), evidence }, covers, deps, signal);
}

/** Kept with the run: what a second delivery merged behind the run's load would wait for the next night's. */
async function mergeOnce(run: Run, { stages, runs, log }: JobDeps, signal: AbortSignal): Promise<unknown> {
  const known = run.params['merged'];
  if (known !== undefined) return known;
  const merged = await stages.mergeSegments(run.runId, signal);
  log.info({ runId: run.runId, ...merged }, 'Segments merged');
  await runs.keep(run.runId, { merged });
  return merged;
}

/** Of a run that ended by an error, a report as well: what was held then, and why it ended. */
export async function reportFailedNightly(
  run: Run,
  result: VerdictWithEvidence,
  deps: JobDeps,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  return deps.stages.publishReport(run, result, await deps.completeness(), signal);
}

/** A report that the store refuses is told; what may pass is tried again with the run. */
async function publishReport(
  run: Run,
  result: VerdictWithEvidence,
  covers: Completeness,
  { stages, log }: JobDeps,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  try {
    return await stages.publishReport(run, result, covers, signal);
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    log.warn({ err: error, runId: run.runId }, 'The report of the nightly run could not be published');
    const evidence = { ...result.evidence, reportProblem: describeError(error) };
    return { verdict: worst([result.verdict, 'incomplete']), evidence };
  }
}

/** Before the source is asked for anything: what it sends must have somewhere to go. */
async function tryStore({ stages, log }: JobDeps, signal: AbortSignal): Promise<void> {
  const { isWrittenOnce, detail } = await stages.tryStore(signal);
  if (!isWrittenOnce) log.warn({ store: detail }, 'The object store keeps no second writer out');
}

function isUnreached({ verdict, evidence }: Run): boolean {
  return verdict === 'failed' && errorIn(evidence)?.isUnreachable === true;
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
    workChild(run, { kind: 'sync', subject: list }, deps, {
      signal,
      onProgress: (lines) => show(list, lines),
    }),
  );
  return Promise.all(syncs);
}

function listEvidence(lists: readonly Run[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    lists.map((list) => [list.subject, { verdict: list.verdict, runId: list.runId, ...list.evidence }]),
  );
}

function firstError(lists: readonly Run[]): unknown {
  return lists.map((list) => list.evidence['error']).find((error) => error !== undefined);
}
