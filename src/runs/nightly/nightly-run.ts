/**
 * The nightly run: both lists, every due party's new ledger entries, load, lake, verify. Each step finds
 * what an earlier delivery of its job did; the verdict is computed from Postgres, not from the queue.
 */
import { PermanentError } from '../../core/errors.ts';
import * as states from '../../core/states.ts';
import { worst, type Outcome, type Verdict } from '../../core/verdict.ts';
import { exportDue } from './nightly-exports.ts';
import type { JobDeps, ReportProgress } from '../job.ts';
import type { ProgressLine } from '../progress-line.ts';
import { workChild } from './child-run.ts';
import { nextScheduledMs } from './schedule.ts';
import type { Completeness } from '../store/completeness.ts';
import type { Run } from '../store/run.ts';
import { describeError } from '../work-run.ts';

const HOUR_MS = 3_600_000;

interface Exported {
  readonly lists: readonly Run[];
  readonly exports: Outcome;
}

/** What a state knows. */
interface States {
  preparing: object;
  syncing: object;
  exporting: Pick<Exported, 'lists'>;
  merging: Exported;
  loading: Exported & { readonly merged: Outcome['evidence'] };
  verifying: States['loading'] & { readonly load: Run };
  reporting: { readonly outcome: Outcome; readonly covers: Completeness };
  ended: Outcome;
}

/** How the work of a state may end. */
interface Events {
  preparing: { prepared: object };
  /** Exports need parties, and those that are known will do: only a source that nobody reaches ends the run. */
  syncing: { synced: States['exporting']; unreached: States['reporting'] };
  exporting: { exported: Exported };
  merging: { merged: States['loading'] };
  loading: { loaded: States['verifying'] };
  verifying: { verified: States['reporting'] };
  reporting: { published: Outcome; refused: Outcome };
}

const TRANSITIONS: states.Transitions<States, Events> = {
  preparing: { prepared: (data) => ({ name: 'syncing', data }) },
  syncing: {
    synced: (data) => ({ name: 'exporting', data }),
    unreached: (data) => ({ name: 'reporting', data }),
  },
  exporting: { exported: (data) => ({ name: 'merging', data }) },
  merging: { merged: (data) => ({ name: 'loading', data }) },
  loading: { loaded: (data) => ({ name: 'verifying', data }) },
  verifying: { verified: (data) => ({ name: 'reporting', data }) },
  reporting: {
    published: (data) => ({ name: 'ended', data }),
    refused: ({ verdict, evidence }) => ({
      name: 'ended',
      data: { verdict: worst([verdict, 'incomplete']), evidence },
    }),
  },
};

export function runNightly(run: Run, deps: JobDeps, signal: AbortSignal): Promise<Outcome> {
  const onProgress: ReportProgress = (lines) => deps.progress.report(run.runId, lines);
  const work: states.Work<States, Events> = {
    preparing: async () => {
      await tryStore(deps, signal);
      await deps.stages.catchUpWithStore(signal);
      return { kind: 'prepared', data: {} };
    },
    syncing: async () => {
      const lists = await syncLists(run, deps, signal);
      if (!lists.every(isUnreached)) return { kind: 'synced', data: { lists } };
      const evidence = { lists: listEvidence(lists), error: firstError(lists) };
      const covers = await deps.completeness();
      return { kind: 'unreached', data: { outcome: { verdict: 'failed', evidence }, covers } };
    },
    exporting: async ({ lists }) => {
      const exports = await exportDue(run, deps, signal, undefined, { untilMs: askUntilMs(run, deps) });
      deps.log.info({ runId: run.runId, verdict: exports.verdict, ...exports.evidence }, 'Exports ended');
      return { kind: 'exported', data: { lists, exports } };
    },
    merging: async (exported) => {
      const merged = await deps.stages.mergeSegments(run.runId, signal);
      deps.log.info({ runId: run.runId, ...merged }, 'Segments merged');
      await deps.stages.recordCoverage(signal);
      return { kind: 'merged', data: { ...exported, merged } };
    },
    loading: async (exported) => {
      const wanted = { kind: 'load', subject: 'warehouse and lake' } as const;
      const load = await workChild(run, wanted, deps, signal, onProgress);
      return { kind: 'loaded', data: { ...exported, load } };
    },
    verifying: async (loaded) => {
      const request = { runId: run.runId, deep: false, scope: 'nightly' } as const;
      const verify = await deps.stages.verify(request, { signal, onProgress });
      const { verdict, evidence } = verify;
      deps.log.info({ runId: run.runId, verdict, checked: evidence['checked'] }, 'Verified');
      return { kind: 'verified', data: await sumUp(run, { ...loaded, verify }, deps, signal) };
    },
    reporting: ({ outcome, covers }) => publishReport(run, outcome, covers, deps, signal),
  };
  return states.runStates(TRANSITIONS, work, { name: 'preparing', data: {} });
}

async function sumUp(
  run: Run,
  { lists, exports, merged, load, verify }: States['verifying'] & { readonly verify: Outcome },
  deps: JobDeps,
  signal: AbortSignal,
): Promise<States['reporting']> {
  const untidy = await tidy(deps, signal);
  const covers = await deps.completeness();
  const verdicts: Verdict[] = [
    ...lists.map(({ verdict }) => (verdict === undefined || verdict === 'failed' ? 'incomplete' : verdict)),
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
    source: await deps.costs.ofRun(run.runId),
  };
  return { outcome: { verdict: worst(verdicts), evidence }, covers };
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
async function publishReport(
  run: Run,
  outcome: Outcome,
  covers: Completeness,
  { stages, log }: JobDeps,
  signal: AbortSignal,
): Promise<states.EventOf<Events['reporting']>> {
  try {
    return { kind: 'published', data: await stages.publishReport(run, outcome, covers, signal) };
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    log.warn({ err: error, runId: run.runId }, 'The report of the nightly run could not be published');
    const evidence = { ...outcome.evidence, reportProblem: describeError(error) };
    return { kind: 'refused', data: { ...outcome, evidence } };
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

function listEvidence(lists: readonly Run[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    lists.map((list) => [list.subject, { verdict: list.verdict, runId: list.runId, ...list.evidence }]),
  );
}

function firstError(lists: readonly Run[]): unknown {
  return lists.map((list) => list.evidence['error']).find((error) => error !== undefined);
}
