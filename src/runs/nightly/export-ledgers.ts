/**
 * The ledgers of a nightly run, as its jobs export them: one after another, settled in
 * batches.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import {
  errorCode,
  FencedError,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../../errors/errors.ts';
import { attributeFault, isRefusal } from '../../errors/faults.ts';
import type { SourceClock } from '../../exports/planning/source-clock.ts';
import { instant } from '../../ledger/json-fields.ts';
import type { ExportRequest } from '../../exports/request.ts';
import type {
  ClockQuestion,
  JobContext,
  JobDeps,
  LeasedLedgers,
  ReportProgress,
  StageCall,
} from '../job.ts';
import { exportKey } from '../progress.ts';
import type { Run, RunStore } from '../store/run-store.ts';
import { describeError, readKnownRun } from '../work-run.ts';
import { nextScheduledMs } from '../../time/scheduled-times.ts';
import type { SettledLedger } from '../store/nightly/nightly-store.ts';

/** Tries of one ledger in one nightly run, with the queue's back-off between them. */
const TRIES_MAX = 4;
/**
 * How soon a job notices that its run was told to stop; so often it writes what is known.
 */
const LOOK_EVERY_MS = 2_000;
/**
 * Somebody may wait for a ledger that is leased: those not begun by then are given back.
 */
const LEASED_MS = 10_000;
/** What the exports of a run in this process have met. */
interface MetFaults {
  /** Failures in a row of different ledgers that every other ledger would meet as well. */
  inARow: number;
  /** Refusals in a row. */
  refusals: number;
  /** The source has answered at least one of them. */
  hasAnswered: boolean;
}

const MET_FAULTS = new Map<string, MetFaults>();
/** The runs of this process that are remembered. */
const RUNS_MAX = 16;
const COMMON_FAULTS_MAX = 3;
/**
 * A source that refuses so many ledgers and answers none refuses everybody. One that
 * answers others has refused these alone.
 */
const REFUSALS_MAX = 50;

/** As the source counts its blocks: up to 2^64. */
const blockHeight = z.codec(z.string().regex(/^\d{1,20}$/), z.bigint(), {
  decode: BigInt,
  encode: String,
});

const storedClock = z.object({
  seen: instant,
  closedTo: instant,
  from: z.enum(['source', 'guessed']),
  height: blockHeight.optional(),
  answeredAt: instant.optional(),
});

/** Read once a run and kept with it: a resumed run closes at the same instant. */
export async function fixClock(
  run: Run,
  deps: JobDeps,
  question: ClockQuestion,
): Promise<SourceClock> {
  const stored = storedClock.safeParse(run.params['clock']);
  if (stored.success) return stored.data;
  const clock = await deps.stages.clock(question);
  await deps.runs.keep(run.runId, { clock: storedClock.encode(clock) });
  return clock;
}

export function reportTo(
  keys: readonly string[],
  { progress }: JobDeps,
): ReportProgress {
  return (lines) => keys.forEach((key) => progress.report(key, lines));
}

type Ledgers = Readonly<{ runId: string; partyIds: readonly string[] }>;

/** A job that is delivered again leaves out what is settled. */
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
  const stopped = new AbortController();
  const done = new AbortController();
  const watching = watchRun(run, deps.runs, stopped, done.signal, batch);
  const signal = AbortSignal.any([context.signal, stopped.signal]);
  try {
    for (const partyId of unsettled) {
      if (stopped.signal.aborted || meetsCommonFault(runId)) break;
      await batch.writeAgain();
      const request = {
        runId,
        partyId,
        clock,
        ...audits,
      };
      if (!(await exportLedger(request, deps, { ...context, signal }, batch)))
        break;
    }
  } catch (error) {
    // Told to stop: the run settles what is left.
    if (!stopped.signal.aborted) throw error;
  } finally {
    done.abort();
    await watching;
    await batch.end();
    await deps.costs.flush();
  }
  if (stopped.signal.aborted || batch.lost.size === 0) return;
  const message =
    `Cannot count the exports of ${batch.lost.size} ledgers: other workers had ` +
    'taken them over; they are asked for again';
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
 * The ledgers of one job, leased together. What became of them, and what was found to be
 * empty, is written together; a process that is killed asks for those again that were not
 * written.
 */
function openBatch(
  runId: string,
  partyIds: readonly string[],
  { stages, nightly }: JobDeps,
) {
  /** Those whose export did not count: another had taken them over. */
  const lost = new Set<string>();
  let settled: SettledLedger[] = [];
  let ledgers: LeasedLedgers | undefined;
  let leasedAtMs = Infinity;
  let hasFailed = false;
  let writing = Promise.resolve();

  /** What cannot be written is kept for the next call. */
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

  /** One at a time. */
  async function write() {
    const written = writing.then(writeKnown);
    writing = written.catch(() => undefined);
    await written;
  }

  return {
    lost,
    async export(request: ExportRequest, call: StageCall) {
      // One alone may take hours, and what is known of the source must not be as old by
      // then.
      if (partyIds.length === 1) return stages.export(request, call);
      if (ledgers === undefined) {
        leasedAtMs = performance.now();
        ledgers = await stages.leaseLedgers(partyIds);
      }
      return ledgers.export(request, call);
    },
    add: (ledger: SettledLedger) => void settled.push(ledger),
    /**
     * Where the last write failed: what cannot be written is not the fault of the ledger
     * that comes next.
     */
    async writeAgain() {
      if (hasFailed) await write();
    },
    /**
     * To be called now and then: a ledger that takes long keeps neither what is known of
     * others, nor their leases.
     */
    async look() {
      await write();
      if (performance.now() - leasedAtMs > LEASED_MS)
        await ledgers?.releaseUnstarted();
    },
    /** Writes what is known, and gives back what is leased. */
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
    typeof params['stopped'] !== 'string'
  );
}

/**
 * Aborts what is in hand when the run was cancelled, has ended, or asks no more: that
 * counts as not asked.
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
    // What cannot be written now is written at the end.
    await batch.look().catch(() => undefined);
    const now = await runs.get(runId).catch(() => undefined);
    if (now !== undefined && !isAsking(now))
      stopped.abort(
        new PermanentError(`Run ${runId} asks no more`, { code: 'CANCELLED' }),
      );
  }
}

/**
 * Settles its ledger whatever happens, save where trying again may help.
 * @returns whether it makes sense to ask for the next
 */
async function exportLedger(
  request: ExportRequest,
  deps: JobDeps,
  context: JobContext,
  batch: Batch,
) {
  const { signal, attempt } = context;
  const { runId, partyId } = request;
  try {
    const call = {
      signal,
      onProgress: reportTo([`${runId}.export`, exportKey(partyId)], deps),
    };
    const { verdict, evidence } = await deps.costs.charge(runId, () =>
      batch.export(request, call),
    );
    batch.add({ partyId, state: 'done', outcome: { verdict, ...evidence } });
    if (!meetsCommonFault(runId)) {
      Object.assign(metFaults(runId), {
        inARow: 0,
        refusals: 0,
        hasAnswered: true,
      });
    }
    return true;
  } catch (error) {
    if (signal.aborted) throw error;
    const isAway = error instanceof UnreachableError;
    // The object store was waited for by the call itself, so it is not tried again.
    const isStoreAway = isAway && errorCode(error).startsWith('OBJECT_STORE_');
    const mayPass =
      !isStoreAway &&
      (error instanceof RetryableError || error instanceof FencedError);
    if (mayPass && attempt < TRIES_MAX) throw error;
    if (!mayPass && !isStoreAway && !(error instanceof PermanentError))
      deps.log.error(
        { err: error, runId, partyId },
        'Export met an unexpected error',
      );
    const described = describeError(error);
    const { code, message: reason } = described;
    deps.log.warn(
      { runId, partyId, code, reason },
      'Ledger could not be exported',
    );
    batch.add({ partyId, state: 'failed', outcome: { error: described } });
    if (!isAway) return goesOn(runId, error, deps);
    // Every other ledger would wait as long for it.
    const what = isStoreAway ? 'object store' : 'source';
    await deps.runs.keep(runId, {
      stopped: `the ${what} could not be reached`,
    });
    return false;
  }
}

/**
 * A run that stopped for common faults keeps its count: another job of this process must
 * not ask before the stop is written down.
 */
function meetsCommonFault(runId: string): boolean {
  const { inARow, refusals, hasAnswered } = metFaults(runId);
  return (
    inARow >= COMMON_FAULTS_MAX || (!hasAnswered && refusals >= REFUSALS_MAX)
  );
}

function metFaults(runId: string): MetFaults {
  const known = MET_FAULTS.get(runId);
  if (known !== undefined) return known;
  const met = { inARow: 0, refusals: 0, hasAnswered: false };
  MET_FAULTS.set(runId, met);
  const [oldest] = MET_FAULTS.keys();
  if (MET_FAULTS.size > RUNS_MAX && oldest !== undefined)
    MET_FAULTS.delete(oldest);
  return met;
}

/**
 * A fault of the source or of the mirror, three times in a row, concerns all: the rest is
 * left to another night. A refusal concerns all only if nobody was answered.
 */
async function goesOn(
  runId: string,
  error: unknown,
  deps: JobDeps,
): Promise<boolean> {
  if (meetsCommonFault(runId)) return false;
  const fault = attributeFault(error);
  const met = metFaults(runId);
  if (isRefusal(error)) {
    met.refusals += 1;
  } else {
    const isCommon = fault === 'source' || fault === 'mirror';
    met.inARow = isCommon ? met.inARow + 1 : 0;
  }
  if (!meetsCommonFault(runId)) return true;
  try {
    const times = isRefusal(error) ? met.refusals : met.inARow;
    const stopped = `${times} ledgers in a row failed of the ${fault}: ${errorCode(error)}`;
    await deps.runs.keep(runId, { stopped });
  } catch (unwritten) {
    MET_FAULTS.delete(runId);
    throw unwritten;
  }
  return false;
}

/**
 * A share of the segments in each night, so that each has its turn within the time that
 * is set, and those that chance has left out until then.
 */
function chooseAudits({
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
