/**
 * The nightly run: both lists, every due party's new ledger entries, load, lake, verify.
 * Each step finds what an earlier delivery of its job did; the verdict is computed from
 * Postgres, not from the queue.
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
import { readNightWindow } from './night-window.ts';

const POLL_MS = 200;
/** The job of a part may have been lost with its queue: the queue is asked. */
const LOOK_AFTER_MS = 30_000;
/** A part that nobody has begun, or renewed, for this long: no worker takes it. */
const NO_PROGRESS_MS = 600_000;

/** Another network's answers about our parties are empty, and would close ledgers. */
const OTHER_NETWORK: VerdictWithEvidence = {
  verdict: 'suspicious',
  evidence: {
    code: 'OTHER_NETWORK',
    reason:
      'the source shows another network than the one that is held: no ledger was asked for',
  },
};

/** A run below the nightly one. */
type Part = Pick<NewRun, 'kind' | 'subject' | 'params'>;

/** Takes over what an earlier delivery of the run's job did. */
export async function runNightly(
  run: Run,
  deps: JobDeps,
  call: StageCall,
): Promise<VerdictWithEvidence> {
  const { stages, log } = deps;
  const { signal } = call;
  // Before the source is asked for anything: what it sends must have somewhere to go.
  const { isWrittenOnce, detail } = await stages.tryStore(signal);
  if (!isWrittenOnce)
    log.warn({ store: detail }, 'The object store keeps no second writer out');
  await stages.catchUpWithStore(signal);
  const { untilMs } = await readNightWindow(run, deps);
  const watch = new SourceWatch(run, deps, { signal, untilMs });
  try {
    return await mirrorSource(run, deps, call, untilMs);
  } finally {
    await watch.end();
  }
}

/** All that follows once the object store is known to take what the source sends. */
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
  // Exports need parties, and those that are known will do: only a source that nobody
  // reaches ends the run.
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
    // As the status decides when the run has ended.
    mirror: { complete: reasons.length === 0, reasons },
    covers,
    lists,
    exports: { verdict: exports.verdict, ...exports.evidence },
    merged,
    load: { verdict: load.verdict, ...load.evidence },
    verify: { verdict: verify.verdict, ...verify.evidence },
    // What is undefined is left out of the evidence.
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
 * How long the source was away from this run. `sourceAway` is an absence that outlasted
 * the run's window: such a night is tried again (schedule-store.ts).
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
 * Kept with the run: what a second delivery merged behind the run's load would wait for
 * the next night's.
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
 * Whether the source states the same, if it is a mirror. A ledger that differs is
 * exported again in a run of its own, so that what this run has just covered is asked for
 * too.
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
      'Asked again: the source states another ledger',
    );
  };
  const night = { runId, wanted: scope.partyIds };
  return deps.stages.compareWithSource(night, { ...call, askAgain });
}

/**
 * What could not be cleared up waits for the next run, and says nothing against what this
 * one brought.
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
      'What dead processes left in the store could not be cleared',
    );
    return describeError(error);
  }
}

/** Syncs both lists side by side; the run's progress shows the lines of both. */
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
 * Starts the run below this one, or finds it, and waits until it has its verdict, or
 * until nobody works it.
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
        'Part of the nightly run given up: nobody works it',
      );
      const message =
        'no worker has taken it for long; look whether workers are running';
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
