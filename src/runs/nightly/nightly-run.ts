/**
 * The nightly run: both lists, every due party's new ledger entries, load, lake, verify.
 * Each step builds on what an earlier delivery of the job did. The verdict is computed
 * from Postgres, not from the queue.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { RetryableError } from '../../errors/errors.ts';
import { formatInstant } from '../../time/time.ts';
import { worst, type VerdictWithEvidence } from '../../errors/verdict.ts';
import { findNightReasons, findReasons } from '../../status/reasons.ts';
import { enqueueRun } from '../enqueue.ts';
import {
  type AskAgain,
  PRIORITY,
  type JobDeps,
  type StageCall,
} from '../job.ts';
import type { ProgressLine } from '../progress.ts';
import { errorIn, isOver } from '../run-document.ts';
import type { NewRun, Run } from '../store/run-store.ts';
import { describeError } from '../work-run.ts';
import { readAbsence, readWaits } from '../store/source-absence.ts';
import { exportDue } from './nightly-exports.ts';
import { readNightlyScope } from './nightly-preview.ts';
import { SourceWatch } from './source-wait.ts';
import { fixNightWindow } from './night-window.ts';

const POLL_MS = 200;
/**
 * How often to check that a part's job still exists: if the queue is lost, so are its
 * jobs.
 */
const LOOK_AFTER_MS = 30_000;
/**
 * If a part has been neither started nor renewed for this long, no worker will take it.
 */
const NO_PROGRESS_MS = 600_000;

/**
 * The result of the exports if the source serves another network. Its responses about our
 * parties would be empty, and would wrongly close ranges.
 */
const OTHER_NETWORK: VerdictWithEvidence = {
  verdict: 'suspicious',
  evidence: {
    code: 'OTHER_NETWORK',
    reason:
      'the source shows another network than the one that is held: no ' +
      'ledger was requested',
  },
};

/** A child run that the nightly run starts. */
type Part = Pick<NewRun, 'kind' | 'subject' | 'params'>;

/**
 * Carries out a nightly run, or resumes one that an earlier delivery of its job began.
 */
export async function runNightly(
  run: Run,
  deps: JobDeps,
  call: StageCall,
): Promise<VerdictWithEvidence> {
  const { stages, log } = deps;
  const { signal } = call;
  // Before any request to the source, make sure that its responses can be stored.
  const { isWrittenOnce, detail } = await stages.tryStore(signal);
  if (!isWrittenOnce)
    log.warn(
      { store: detail },
      'The object store does not keep out a second writer',
    );
  await stages.catchUpWithStore(signal);
  const { untilMs } = await fixNightWindow(run, deps);
  const watch = new SourceWatch(run, deps, { signal, untilMs });
  try {
    return await mirrorSource(run, deps, call, untilMs);
  } finally {
    await watch.end();
  }
}

/** Runs the rest of the night once the object store is known to work. */
async function mirrorSource(
  run: Run,
  deps: JobDeps,
  call: StageCall,
  untilMs: number,
): Promise<VerdictWithEvidence> {
  const { stages, log } = deps;
  const { signal } = call;
  const { runId } = run;
  const synced = await syncLists(run, deps, signal);
  const lists = Object.fromEntries(
    synced.map((list) => [
      list.subject,
      { verdict: list.verdict, runId: list.runId, ...list.evidence },
    ]),
  );
  // Exports need parties, but known ones suffice, so the run ends here only if the source
  // is unavailable for both lists.
  if (synced.every(isUnreached)) {
    const away = await readSourceEvidence(run, deps);
    return {
      verdict: 'failed',
      evidence: { lists, error: synced[0]?.evidence['error'], ...away },
    };
  }
  const exports = (await stages.isOtherNetwork(signal))
    ? OTHER_NETWORK
    : await exportDue(run, deps, { signal, untilMs });
  log.info(
    { runId, verdict: exports.verdict, ...exports.evidence },
    'Exports ended',
  );
  const merged = await mergeOnce(run, deps, signal);
  const load = await workPart(
    run,
    { kind: 'load', subject: 'warehouse and lake' },
    deps,
    call,
  );
  const verify = await stages.verify(
    { runId, deep: false, scope: 'nightly' },
    call,
  );
  log.info(
    { runId, verdict: verify.verdict, checked: verify.evidence['checked'] },
    'Verified',
  );
  const sourceProof = await compareWithSource(run, deps, call);
  const untidy = await tidy(deps, signal);
  const covers = await deps.completeness();
  const nightReasons = findNightReasons(covers);
  const verdicts = [
    ...synced.map(({ verdict }) =>
      verdict === null || verdict === 'failed' ? 'incomplete' : verdict,
    ),
    exports.verdict,
    load.verdict ?? 'failed',
    verify.verdict,
    sourceProof?.verdict ?? 'complete',
    nightReasons.length === 0 ? 'complete' : 'incomplete',
  ] as const;
  const verdict = worst(verdicts);
  const listVerdicts = synced.map((list) => list.verdict);
  const reasons = findReasons(covers, [...listVerdicts, verdict]);
  const evidence = {
    // Decided by the same rule that the status will use after the run.
    mirror: { complete: reasons.length === 0, reasons },
    covers,
    lists,
    exports: { verdict: exports.verdict, ...exports.evidence },
    merged,
    load: { verdict: load.verdict, ...load.evidence },
    verify: { verdict: verify.verdict, ...verify.evidence },
    // Undefined values are left out of the evidence.
    sourceProof: sourceProof && {
      verdict: sourceProof.verdict,
      ...sourceProof.evidence,
    },
    untidy,
    ...(await readSourceEvidence(run, deps)),
    source: await deps.costs.ofRun(runId),
  };
  return { verdict, evidence };
}

function isUnreached({ verdict, evidence }: Run): boolean {
  const error = errorIn(evidence);
  if (error === null || verdict === 'complete') return false;
  return error.isSourceAway || error.isUnreachable;
}

/**
 * Reads how long the source was unavailable to this run. `sourceAway` is an outage that
 * outlasted the run's window; such a night is retried (schedule-store.ts).
 */
async function readSourceEvidence(
  { runId }: Run,
  { runs }: JobDeps,
): Promise<{ sourceAway?: object; sourceWaits?: object }> {
  const run = await runs.get(runId);
  if (run === undefined) return {};

  const absence = readAbsence(run);
  const sourceWaits = readWaits(run);
  return {
    ...(absence === undefined ? {} : { sourceAway: absence }),
    ...(sourceWaits === undefined ? {} : { sourceWaits }),
  };
}

/**
 * Merges segments once per run. If a second delivery merged more after the load, the
 * result would have to wait for the next night's load.
 */
async function mergeOnce(
  run: Run,
  { stages, runs, log }: JobDeps,
  signal: AbortSignal,
): Promise<unknown> {
  const known = run.params['merged'];
  if (known !== undefined) return known;
  const merged = await stages.mergeSegments(run.runId, signal);
  log.info({ runId: run.runId, ...merged }, 'Segments merged');
  await runs.keep(run.runId, { merged });
  return merged;
}

/**
 * Compares the mirror with the source's statements, if the source is itself a mirror. A
 * ledger that differs is exported again in a separate run, so that its ranges are
 * requested even if this run has just covered them.
 */
async function compareWithSource(
  run: Run,
  deps: JobDeps,
  call: StageCall,
): Promise<VerdictWithEvidence | undefined> {
  const { runId } = run;
  const { scope } = await readNightlyScope(deps);
  const askAgain: AskAgain = async (partyId, { from, to }) => {
    const params = {
      from: formatInstant(from),
      to: formatInstant(to),
      again: true,
      load: false,
    };
    const part = { kind: 'export', subject: partyId, params } as const;
    const { verdict } = await workPart(run, part, deps, call);
    deps.log.info(
      { runId, partyId, verdict },
      'Requested again: the statement of the source differs',
    );
  };
  const night = { runId, wanted: scope.partyIds };
  return deps.stages.compareWithSource(night, { ...call, askAgain });
}

/**
 * Removes what crashed processes left in the store. If that fails, the next run tries
 * again; this run's verdict is not affected.
 */
async function tidy(
  { stages, log }: JobDeps,
  signal: AbortSignal,
): Promise<unknown> {
  try {
    return await stages.tidy(signal);
  } catch (error) {
    signal.throwIfAborted();
    log.warn(
      { err: error },
      'What dead processes left in the store could not be removed',
    );
    return describeError(error);
  }
}

/** Syncs both lists at the same time; the run's progress shows the lines of both. */
async function syncLists(
  run: Run,
  deps: JobDeps,
  signal: AbortSignal,
): Promise<readonly Run[]> {
  const shown = new Map<string, readonly ProgressLine[]>();
  const params = { wholeUpToRows: deps.nightlyListRows };
  const syncs = ['parties', 'checkpoints'].map((subject) => {
    const onProgress = (lines: readonly ProgressLine[]): void => {
      shown.set(subject, lines);
      deps.progress.report(run.runId, [...shown.values()].flat());
    };
    return workPart(run, { kind: 'sync', subject, params }, deps, {
      signal,
      onProgress,
    });
  });
  return Promise.all(syncs);
}

/**
 * Starts the child run, or finds it, and waits until it has a verdict or it is clear that
 * no worker will take it.
 */
async function workPart(
  parent: Run,
  wanted: Part,
  deps: JobDeps,
  call: StageCall,
) {
  const { signal, onProgress } = call;
  const { runs, progress, log } = deps;
  const { runId } = await runs.create({ ...wanted, parentRunId: parent.runId });
  let seen = '';
  let movedAtMs = performance.now();
  let lookedAtMs = -Infinity;
  for (;;) {
    const now = await runs.get(runId);
    if (now === undefined)
      throw new RetryableError(`Cannot follow run ${runId}: it is gone`, {
        code: 'RUN_GONE',
      });
    const lines = await progress.read(runId);
    if (lines.length > 0) onProgress(lines);
    if (isOver(now)) return now;
    const nowMs = performance.now();
    const sign = `${now.attempts} ${now.heartbeatAt}`;
    if (sign !== seen) movedAtMs = nowMs;
    seen = sign;
    if (nowMs - movedAtMs > NO_PROGRESS_MS) {
      log.warn(
        { runId, ...wanted },
        'A part of the nightly run was given up: no worker is working on it',
      );
      const message =
        'no worker has taken it for a long time; check whether workers ' +
        'are running';
      await runs.finish(runId, 'incomplete', {
        error: { code: 'NO_PROGRESS', message },
      });
    } else if (nowMs - lookedAtMs > LOOK_AFTER_MS) {
      lookedAtMs = nowMs;
      await enqueueRun(now, deps, PRIORITY.nightly);
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}
