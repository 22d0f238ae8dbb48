/**
 * Exports the ledgers of one job of a nightly run, one after another, and settles them in
 * batches.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  errorCode,
  FencedError,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../../errors/errors.ts';
import { isSourceAway } from '../../errors/faults.ts';
import type { ExportRequest } from '../../exports/export-context.ts';
import type { JobContext, JobDeps, LeasedLedgers, StageCall } from '../job.ts';
import { fixClock } from '../fix-clock.ts';
import { exportKey, reportTo } from '../progress.ts';
import type { Run, RunStore } from '../store/run-store.ts';
import { describeError, readKnownRun } from '../work-run.ts';
import { nextScheduledMs } from '../../time/scheduled-times.ts';
import { LedgerShare } from './ledger-share.ts';
import { forgetFaults, metFaults } from './met-faults.ts';
import { ledgerShareMs, fixNightWindow } from './night-window.ts';
import { awaitExport, awaitSource } from './source-wait.ts';
import type { SettledLedger } from '../store/nightly/nightly-store.ts';

/**
 * Maximum number of attempts at one ledger in one nightly run, with the queue's backoff
 * between them.
 */
const TRIES_MAX = 4;
/**
 * How often a job writes its results so far, and checks whether its run has been told to
 * stop.
 */
const LOOK_EVERY_MS = 2_000;
/**
 * How long ledgers stay leased before their export starts. After that they are released,
 * because another run may be waiting for them.
 */
const LEASED_MS = 10_000;
type Ledgers = Readonly<{ runId: string; partyIds: readonly string[] }>;

/**
 * Exports the ledgers of a job. A job that is delivered again skips the ledgers already
 * settled.
 */
export async function exportLedgers(
  ledgers: Ledgers,
  deps: JobDeps,
  context: JobContext,
): Promise<void> {
  const { runId, partyIds } = ledgers;
  const run = await readKnownRun(runId, deps, context);
  if (!isAsking(run)) return;
  const clock = await fixClock(run, deps, context);
  const unsettled = await deps.nightly.unsettled(runId, partyIds);
  const batch = openBatch(runId, unsettled, deps);
  const audits = chooseAudits(deps);
  const shareMs = ledgerShareMs(await fixNightWindow(run, deps));
  const stopped = new AbortController();
  const done = new AbortController();
  const watching = watchRun(run, deps.runs, stopped, done.signal, batch);
  const signal = AbortSignal.any([context.signal, stopped.signal]);
  try {
    for (const partyId of unsettled) {
      if (stopped.signal.aborted || metFaults(runId).isCommon) break;
      await batch.writeAgain();
      const request = {
        runId,
        partyId,
        clock,
        shareMs,
        ...audits,
      };
      if (!(await exportLedger(request, deps, { ...context, signal }, batch)))
        break;
    }
  } catch (error) {
    // The job was told to stop; the run settles the remaining ledgers.
    if (!stopped.signal.aborted) throw error;
  } finally {
    done.abort();
    await watching;
    await batch.end();
    await deps.costs.flush();
  }
  if (stopped.signal.aborted || batch.lost.size === 0) return;
  const message =
    `Cannot count the exports of ${batch.lost.size} ledgers: other ` +
    'workers had taken them over; they will be requested again';
  const error = new RetryableError(message, { code: 'LEASE_LOST' });
  if (context.attempt < TRIES_MAX) throw error;
  const failed = {
    state: 'failed',
    outcome: { error: describeError(error) },
  } as const;
  const lost = [...batch.lost].map((partyId) => ({ partyId, ...failed }));
  await deps.nightly.settle(runId, lost);
}

type Batch = ReturnType<typeof openBatch>;

/**
 * The ledgers of one job, leased together. Their outcomes and proofs of emptiness are
 * also written together; if the process is killed, ledgers not yet written are requested
 * again.
 */
function openBatch(
  runId: string,
  partyIds: readonly string[],
  { stages, nightly }: JobDeps,
) {
  /** Ledgers whose export does not count, because another worker took them over. */
  const lost = new Set<string>();
  let settled: SettledLedger[] = [];
  let ledgers: LeasedLedgers | undefined;
  let leasedAtMs = Infinity;
  let hasFailed = false;
  let writing = Promise.resolve();

  /** Writes the results so far. If that fails, they are kept for the next call. */
  async function writeKnown() {
    const known = settled;
    settled = [];
    try {
      for (const partyId of (await ledgers?.write()) ?? []) lost.add(partyId);
      const counted = known.filter(({ partyId }) => !lost.has(partyId));
      if (counted.length > 0) await nightly.settle(runId, counted);
      hasFailed = false;
    } catch (error) {
      hasFailed = true;
      settled = [...known, ...settled];
      throw error;
    }
  }

  /** Writes once any write in progress has finished. */
  async function write() {
    const written = writing.then(writeKnown);
    writing = written.catch(() => undefined);
    await written;
  }

  return {
    lost,
    async export(request: ExportRequest, call: StageCall) {
      // A single ledger may take hours. By then, the facts that a shared lease reads only
      // once would be out of date.
      if (partyIds.length === 1) return stages.export(request, call);
      if (ledgers === undefined) {
        leasedAtMs = performance.now();
        ledgers = await stages.leaseLedgers(partyIds);
      }
      return ledgers.export(request, call);
    },
    add: (ledger: SettledLedger) => void settled.push(ledger),
    /**
     * Retries the last write if it failed, so that the failure is not blamed on the next
     * ledger.
     */
    async writeAgain() {
      if (hasFailed) await write();
    },
    /**
     * Must be called periodically. Otherwise a slow ledger would hold back the results of
     * the others, and keep them leased.
     */
    async look() {
      await write();
      if (performance.now() - leasedAtMs > LEASED_MS)
        await ledgers?.releaseUnstarted();
    },
    /** Writes the results and releases all leases. */
    async end() {
      try {
        await write();
      } finally {
        await ledgers?.[Symbol.asyncDispose]();
      }
    },
  };
}

function isAsking({ state, cancelRequested, params }: Run): boolean {
  return (
    state === 'running' &&
    !cancelRequested &&
    params['hasAsked'] !== true &&
    typeof params['stopped'] !== 'string'
  );
}

/**
 * Aborts the current export once the run is cancelled, has ended, or has stopped making
 * requests. The ledger then counts as not requested.
 */
async function watchRun(
  run: Run,
  runs: RunStore,
  stopped: AbortController,
  done: AbortSignal,
  batch: Batch,
) {
  const { runId } = run;
  while (!stopped.signal.aborted) {
    await sleep(LOOK_EVERY_MS, undefined, { signal: done, ref: false }).catch(
      () => undefined,
    );
    if (done.aborted) return;
    // If this write fails, the final one repeats it.
    await batch.look().catch(() => undefined);
    const now = await runs.get(runId).catch(() => undefined);
    if (now !== undefined && !isAsking(now))
      stopped.abort(
        new PermanentError(`Run ${runId} asks no more`, { code: 'CANCELLED' }),
      );
  }
}

interface LedgerRequest extends ExportRequest {
  /** How much of the window this ledger may use while others wait. */
  readonly shareMs: number;
}

/** Why a ledger's turn has ended. */
type Turn =
  | 'answered'
  /** The source was unavailable and is back: request the ledger again. */
  | 'again'
  /** The ledger gets another turn after the others. */
  | 'postponed'
  | 'failed'
  /** Request no further ledgers. */
  | 'stop';

/**
 * Settles the ledger whatever the outcome, unless retrying the job may help.
 * @returns whether to continue with the next ledger
 */
async function exportLedger(
  request: LedgerRequest,
  deps: JobDeps,
  context: JobContext,
  batch: Batch,
): Promise<boolean> {
  for (;;) {
    const turn = await takeTurn(request, deps, context, batch);
    if (turn !== 'again') return turn !== 'stop';
  }
}

async function takeTurn(
  { shareMs, ...request }: LedgerRequest,
  deps: JobDeps,
  context: JobContext,
  batch: Batch,
): Promise<Turn> {
  const { signal } = context;
  const { runId, partyId } = request;
  using share = new LedgerShare({ runId, partyId, shareMs }, deps, signal);
  try {
    const call = {
      signal: share.signal,
      onProgress: reportTo(
        [`${runId}.export`, exportKey(partyId)],
        deps.progress,
      ),
    };
    const { verdict, evidence } = await deps.costs.charge(runId, () =>
      batch.export(request, call),
    );
    batch.add({ partyId, state: 'done', outcome: { verdict, ...evidence } });
    metFaults(runId).countAnswer();
    return 'answered';
  } catch (error) {
    if (signal.aborted) throw error;
    if (share.usedUp !== undefined)
      return postpone(share.usedUp, request, deps, batch);
    if (isSourceAway(error))
      return settleUnanswered(error, request, deps, signal, batch);
    return settleFailure(error, request, deps, context, batch);
  }
}

/**
 * Handles a request that got no response. If the source is entirely unavailable, that
 * does not count against the ledger. If it answers other requests, the ledger gets
 * another turn after the others, and fails after several turns.
 */
async function settleUnanswered(
  error: unknown,
  request: ExportRequest,
  deps: JobDeps,
  signal: AbortSignal,
  batch: Batch,
): Promise<Turn> {
  const { runId, partyId } = request;
  const outcome = await awaitSource(runId, error, deps, signal);
  if (outcome === 'given up') return 'stop';
  if (outcome === 'back') return 'again';

  const met = metFaults(runId);
  met.countUnanswered(partyId);
  if (met.isExportAway) {
    const waited = await awaitExport(runId, error, deps, signal);
    if (waited === 'given up') return 'stop';
  }
  return postpone(error, request, deps, batch);
}

/** Moves the ledger behind the others, or fails it once it has used up its turns. */
async function postpone(
  error: unknown,
  { runId, partyId }: ExportRequest,
  deps: JobDeps,
  batch: Batch,
): Promise<Turn> {
  const described = describeError(error);
  const { code, message: reason } = described;
  const turns = await deps.nightly.postpone(runId, partyId, described);
  deps.log.warn(
    { runId, partyId, code, reason, turns },
    'Ledger is queued again behind the others',
  );
  if (turns < TRIES_MAX) return 'postponed';

  batch.add({ partyId, state: 'failed', outcome: { error: described } });
  return 'failed';
}

async function settleFailure(
  error: unknown,
  { runId, partyId }: ExportRequest,
  deps: JobDeps,
  { attempt }: JobContext,
  batch: Batch,
): Promise<Turn> {
  const isAway = error instanceof UnreachableError;
  // The call itself has already waited for the object store, so it is not retried.
  const isStoreAway = isAway && errorCode(error).startsWith('OBJECT_STORE_');
  const mayPass =
    !isStoreAway &&
    (error instanceof RetryableError || error instanceof FencedError);
  if (mayPass && attempt < TRIES_MAX) throw error;
  if (!mayPass && !isStoreAway && !(error instanceof PermanentError))
    deps.log.error(
      { err: error, runId, partyId },
      'An export ended with an unexpected error',
    );
  const described = describeError(error);
  const { code, message: reason } = described;
  deps.log.warn(
    { runId, partyId, code, reason },
    'Ledger could not be exported',
  );
  batch.add({ partyId, state: 'failed', outcome: { error: described } });
  if (!isAway) return (await goesOn(runId, error, deps)) ? 'failed' : 'stop';
  // Every other ledger would wait just as long for the same service.
  const what = isStoreAway ? 'object store' : 'database';
  await deps.runs.keep(runId, {
    stopped: `the ${what} could not be reached`,
  });
  return 'stop';
}

/**
 * Counts a failure that waiting did not resolve.
 * @returns whether to continue with the next ledger
 */
async function goesOn(
  runId: string,
  error: unknown,
  deps: JobDeps,
): Promise<boolean> {
  const met = metFaults(runId);
  if (met.isCommon) return false;

  const stopped = met.countFailure(error);
  if (stopped === undefined) return true;

  try {
    await deps.runs.keep(runId, { stopped });
  } catch (unwritten) {
    forgetFaults(runId);
    throw unwritten;
  }
  return false;
}

/**
 * Chooses the share of segments to audit each night, large enough for every segment to be
 * audited within the configured time. Segments that chance has skipped for that long are
 * audited as well.
 */
export function chooseAudits({
  nightlyAuditShare,
  nightlyAuditWithin: withinMs,
  schedule,
}: Pick<
  JobDeps,
  'nightlyAuditShare' | 'nightlyAuditWithin' | 'schedule'
>): Pick<ExportRequest, 'auditShare' | 'auditWithinMicros'> {
  if (nightlyAuditShare !== undefined) return { auditShare: nightlyAuditShare };
  const nextMs = nextScheduledMs(schedule, Date.now());
  const nightMs = nextScheduledMs(schedule, nextMs) - nextMs;
  return {
    auditShare: Math.min(1, nightMs / withinMs),
    auditWithinMicros: BigInt(withinMs) * 1000n,
  };
}
