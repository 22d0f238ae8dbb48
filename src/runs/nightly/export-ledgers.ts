/** The ledgers of a nightly run, as its jobs export them: one after another, settled in batches. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  errorCode,
  FencedError,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../../core/errors.ts';
import { whoseFault } from '../../core/faults.ts';
import type { SourceClock } from '../../export/plan/source-clock.ts';
import { z } from 'zod';
import { instant } from '../../ledger/json-values.ts';
import type { ExportRequest, JobContext, JobDeps, ReportProgress } from '../job.ts';
import { exportKey } from '../progress/progress-hints.ts';
import { LedgerBatch } from './ledger-batch.ts';
import type { Run } from '../store/run.ts';
import { describeError, readKnownRun, refuseOtherSource } from '../work-run.ts';

/** Tries of one ledger in one nightly run, with the queue's back-off between them. */
const TRIES_MAX = 4;
/** How soon a job notices that its run was told to stop, and that its leases are old. */
const LOOK_EVERY_MS = 2_000;

const storedClock = z.object({ seen: instant, closedTo: instant, from: z.enum(['source', 'guessed']) });

/** Read once a run and kept with it: a resumed run closes at the same instant. */
export async function fixClock(
  run: Run,
  deps: JobDeps,
  signal: AbortSignal,
  options: { readonly maxAgeMs?: number } = {},
): Promise<SourceClock> {
  const stored = storedClock.safeParse(run.params['clock']);
  if (stored.success) return stored.data;
  const clock = await deps.stages.clock(signal, options);
  await deps.runs.keep(run.runId, { clock: storedClock.encode(clock) });
  return clock;
}

export function reportTo(keys: readonly string[], deps: JobDeps): ReportProgress {
  return (lines) => {
    for (const key of keys) deps.progress.report(key, lines);
  };
}

/** A job that is delivered again leaves out what is settled. */
export async function exportLedgers(
  runId: string,
  partyIds: readonly string[],
  deps: JobDeps,
  context: JobContext,
): Promise<void> {
  const run = await readKnownRun(runId, deps, context);
  refuseOtherSource(run, deps);
  if (!isAsking(run)) return;
  const clock = await fixClock(run, deps, context.signal);
  const unsettled = await deps.nightly.unsettled(runId, partyIds);
  const batch = new LedgerBatch(runId, unsettled, deps);
  const stopped = new AbortController();
  const done = new AbortController();
  const watching = watchRun(runId, deps, stopped, done.signal, batch);
  const signal = AbortSignal.any([context.signal, stopped.signal]);
  try {
    for (const partyId of unsettled) {
      if (stopped.signal.aborted || meetsCommonFault(runId)) break;
      const request = { runId, partyId, clock, auditShare: deps.nightlyAuditShare };
      if (!(await exportLedger(request, deps, { ...context, signal }, batch))) break;
      await batch.writeIfDue();
    }
  } catch (error) {
    // Told to stop: the run settles what is left.
    if (!stopped.signal.aborted) throw error;
  } finally {
    done.abort();
    await watching;
    await batch.close();
    await deps.costs.flush();
  }
  if (!stopped.signal.aborted) await settleLost(runId, batch.lost, deps, context);
}

/** @throws where they are to be asked for once more */
async function settleLost(
  runId: string,
  partyIds: readonly string[],
  { nightly }: JobDeps,
  { attempt }: JobContext,
): Promise<void> {
  if (partyIds.length === 0) return;
  const error = new RetryableError(
    `Cannot count the exports of ${partyIds.length} ledgers: other workers had taken them over; they are asked for again`,
    { code: 'LEASE_LOST' },
  );
  if (attempt < TRIES_MAX) throw error;
  const outcome = { error: describeError(error) };
  await nightly.settle(
    runId,
    partyIds.map((partyId) => ({ partyId, state: 'failed', outcome })),
  );
}

function isAsking(run: Run): boolean {
  return run.state === 'running' && !run.cancelRequested && typeof run.params['stopped'] !== 'string';
}

/** Aborts what is in hand when the run was cancelled, has ended, or asks no more: that counts as not asked. */
async function watchRun(
  runId: string,
  deps: JobDeps,
  stopped: AbortController,
  done: AbortSignal,
  batch: LedgerBatch,
): Promise<void> {
  for (;;) {
    await sleep(LOOK_EVERY_MS, undefined, { signal: done, ref: false }).catch(() => undefined);
    if (done.aborted) return;
    // What cannot be written now is written at the end.
    await batch.look().catch(() => undefined);
    const run = await deps.runs.get(runId).catch(() => undefined);
    if (run === undefined || isAsking(run)) continue;
    stopped.abort(new PermanentError(`Run ${runId} asks no more`, { code: 'CANCELLED' }));
    return;
  }
}

/**
 * Settles its ledger whatever happens, save where trying again may help.
 * @returns whether it makes sense to ask for the next
 */
async function exportLedger(
  request: ExportRequest,
  deps: JobDeps,
  { signal, attempt }: JobContext,
  batch: LedgerBatch,
): Promise<boolean> {
  const { runId, partyId } = request;
  try {
    const call = { signal, onProgress: reportTo([`${runId}.export`, exportKey(partyId)], deps) };
    const outcome = await deps.costs.charge(runId, () => batch.export(request, call));
    batch.add({ partyId, state: 'done', outcome: { verdict: outcome.verdict, ...outcome.evidence } });
    endCommonFault(runId);
    return true;
  } catch (error) {
    if (signal.aborted) throw error;
    const isAway = error instanceof UnreachableError;
    // The object store was waited for by the call itself, so it is not tried again.
    const isStoreAway = isAway && errorCode(error).startsWith('OBJECT_STORE_');
    const mayPass = !isStoreAway && (error instanceof RetryableError || error instanceof FencedError);
    if (mayPass && attempt < TRIES_MAX) throw error;
    if (!mayPass && !isStoreAway && !(error instanceof PermanentError)) {
      deps.log.error({ err: error, runId, partyId }, 'Export met an unexpected error');
    }
    const described = describeError(error);
    deps.log.warn(
      { runId, partyId, code: described['code'], reason: described['message'] },
      'Ledger could not be exported',
    );
    batch.add({ partyId, state: 'failed', outcome: { error: described } });
    if (!isAway) return await goesOn(runId, error, deps);
    // Every other ledger would wait as long for it.
    const what = isStoreAway ? 'object store' : 'source';
    await deps.runs.keep(runId, { stopped: `the ${what} could not be reached` });
    return false;
  }
}

/**
 * Failures in a row of different ledgers, by run, that every other ledger would meet as well. A run that stopped for
 * them keeps its count: another job of this process must not ask before the stop is written down.
 */
const COMMON_FAULTS = new Map<string, number>();
const COMMON_FAULTS_MAX = 3;

function meetsCommonFault(runId: string): boolean {
  return (COMMON_FAULTS.get(runId) ?? 0) >= COMMON_FAULTS_MAX;
}

function endCommonFault(runId: string): void {
  if (!meetsCommonFault(runId)) COMMON_FAULTS.delete(runId);
}

/** A fault of the source or of the mirror, three times in a row, concerns all: the rest is left to another night. */
async function goesOn(runId: string, error: unknown, deps: JobDeps): Promise<boolean> {
  const fault = whoseFault(error);
  if (fault !== 'source' && fault !== 'mirror') {
    endCommonFault(runId);
    return true;
  }
  if (meetsCommonFault(runId)) return false;
  const times = (COMMON_FAULTS.get(runId) ?? 0) + 1;
  COMMON_FAULTS.set(runId, times);
  if (times < COMMON_FAULTS_MAX) return true;
  const stopped = `${times} ledgers in a row failed of the ${fault}: ${errorCode(error)}`;
  try {
    await deps.runs.keep(runId, { stopped });
  } catch (unwritten) {
    COMMON_FAULTS.delete(runId);
    throw unwritten;
  }
  return false;
}
