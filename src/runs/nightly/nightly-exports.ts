/**
 * The exports of a nightly run: which parties to request, in which order, until when, and
 * when to leave the source alone.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { formatInstant } from '../../time/time.ts';
import type { VerdictWithEvidence } from '../../errors/verdict.ts';
import type { ListLatency } from '../../source/list-latency.ts';
import type { SourceClock } from '../../exports/planning/source-clock.ts';
import { fixClock } from '../fix-clock.ts';
import type { ProgressLine } from '../progress.ts';
import { whileSourceAway } from './source-wait.ts';
import { BATCH_MAX, JOBS, PRIORITY, type JobDeps } from '../job.ts';
import { readNightlyScope } from './nightly-preview.ts';
import { planNightly, readLateness } from '../store/nightly/nightly-plan.ts';
import { readNowMs } from '../store/schedule-store.ts';
import { readAbsence, type SourceAbsence } from '../store/source-absence.ts';
import type {
  NightlyCounts,
  NightlySummary,
} from '../store/nightly/nightly-store.ts';
import type { Run } from '../store/run-store.ts';

/** Maximum number of ledgers in the queue at once; the rest wait in Postgres. */
const QUEUED_MAX = 1_000;
const FEED_MAX = 400;
/** Maximum size of the ids in one job; the queue accepts jobs of up to 16 KiB. */
const BATCH_BYTES_MAX = 12 * 2 ** 10;
/**
 * Minimum number of batches per export slot, so that no worker runs out of jobs while
 * others still have many.
 */
const BATCHES_A_LEASE = 4;
const POLL_MIN_MS = 100;
const POLL_MAX_MS = 2_000;
/**
 * If no ledger was settled for this long, the run checks whether the queue still has the
 * jobs.
 */
const STALLED_MS = 60_000;
/**
 * If no ledger was settled or being exported for this long, no worker is processing the
 * run's jobs.
 */
const NO_PROGRESS_MS = 600_000;
/**
 * How long to wait for jobs that have no ledger left to request: several times as long as
 * a job takes to notice that.
 */
const STRAY_MAX_MS = 10_000;
/**
 * How long it takes at most until every job notices that its run makes no more requests.
 */
const NOTICED_MS = 5_000;
const PROBE_EVERY_MS = 30_000;
/** How soon the source is probed again after a slow response. */
const PROBE_AGAIN_MS = 5_000;
/**
 * Number of consecutive slow responses before the source counts as slow; a single one may
 * be a passing delay on either side.
 */
const SLOW_ANSWERS_MAX = 3;
const SLOW_MS = 5_000;
/**
 * A response is slow if it takes this many times the median, or this many times
 * `USUAL_MIN_MS` if the median is lower.
 */
const SLOWER_TIMES = 10;
const USUAL_MIN_MS = 100;

interface Asking {
  readonly signal: AbortSignal;
  /**
   * When requests stop, in milliseconds since 1970; undefined if they stop only after the
   * last party.
   */
  readonly untilMs?: number | undefined;
  readonly noProgressMs?: number;
  readonly stalledMs?: number;
  /** How often the source is probed, to see whether the exports overload it. */
  readonly probeEveryMs?: number;
  /** How long to wait for jobs that are still running once every ledger is settled. */
  readonly strayMaxMs?: number;
}

/**
 * Requests every due party's new entries. The verdict `complete` means that every due
 * ledger was requested and proven up to the run's `closedTo`, that none was left out, and
 * that no party has waited longer than promised.
 */
export async function exportDue(
  run: Run,
  deps: JobDeps,
  asking: Asking,
): Promise<VerdictWithEvidence> {
  const { runId } = run;
  const { db, nightly } = deps;
  const clock = await fixClockPatiently(run, deps, asking);
  const { scope } = await readNightlyScope(deps);
  const { asked, ...left } = await planNightly(db, {
    ...scope,
    runId,
    exportsMax: deps.nightlyExportsMax,
  });
  const { deferred, deferredSince, deferredNeverAsked, notDue } = left;
  await nightly.requeue(runId);
  const startedMs = performance.now();
  const before = await nightly.counts(runId, asked);
  const stopped = await feedExports(runId, asked, deps, asking);
  await endRepeatedExports(runId, deps, asking);
  const { done, failed, due, queued } = await nightly.counts(runId, asked);
  const exported = done - before.done;
  const summary = await nightly.summary(runId);
  const lateness = await readLateness(db, scope);
  const unasked = due + queued;
  const lacking =
    failed + unasked + lateness.late + deferred + summary.incomplete;
  const completeness = lacking > 0 ? 'incomplete' : 'complete';
  return {
    verdict: summary.suspicious > 0 ? 'suspicious' : completeness,
    // Undefined values are left out of the evidence.
    evidence: {
      closedTo: formatInstant(clock.closedTo),
      clock: clock.from,
      due: asked + deferred,
      parties: done,
      failed,
      deferred,
      ...(deferred > 0 ? { deferredSince, deferredNeverAsked } : {}),
      unasked,
      notDue,
      ...lateness,
      ...summary,
      secondsPerExport:
        exported === 0
          ? undefined
          : (performance.now() - startedMs) / 1_000 / exported,
      reason: stopped && `stopped early: ${stopped}`,
      ...(exported === 0 ? findAwayFromAll(summary) : {}),
    },
  };
}

/**
 * Stops exports of ledgers that are already settled. After a process is killed, the queue
 * delivers its jobs again alongside their replacements, so a settled ledger may be
 * requested twice. Such jobs are told to stop and awaited, because anything they
 * published after the load would be missing from the warehouse when the run ends.
 */
async function endRepeatedExports(
  runId: string,
  { nightly, runs, queue }: JobDeps,
  { signal, strayMaxMs = STRAY_MAX_MS }: Asking,
): Promise<void> {
  await runs.keep(runId, { hasAsked: true });
  const startedMs = performance.now();
  for (;;) {
    const waitedMs = performance.now() - startedMs;
    if (waitedMs > strayMaxMs) return;
    // A job may be waiting for the lease of its ledger although nobody holds that lease
    // now.
    const hasJobs =
      waitedMs < NOTICED_MS && (await queue.open(JOBS.export.queue)) > 0;
    if (!hasJobs && !(await nightly.hasExportsInHand(runId))) return;
    await sleep(POLL_MIN_MS, undefined, { signal });
  }
}

/**
 * Returns `sourceAway` if the source answered for no ledger at all, even if it serves the
 * lists.
 */
function findAwayFromAll({ failures }: NightlySummary): {
  sourceAway?: unknown;
} {
  const errors = (failures ?? []).map(({ outcome }) => outcome?.error);
  const [first] = errors;
  return first !== undefined && errors.every((error) => error?.sourceAway)
    ? { sourceAway: first }
    : {};
}

/** Reads the source's clock, waiting for the source if it is unavailable. */
async function fixClockPatiently(
  run: Run,
  deps: JobDeps,
  asking: Asking,
): Promise<SourceClock> {
  const call = {
    signal: asking.signal,
    onProgress: (lines: readonly ProgressLine[]) =>
      deps.progress.report(run.runId, lines),
  };
  return whileSourceAway(run.runId, deps, call, 'exports', () =>
    fixClock(run, deps, asking),
  );
}

/**
 * Keeps the queue filled until every ledger is settled, the window is over, or no worker
 * makes progress.
 * @returns the reason if it stopped before every ledger was settled
 */
async function feedExports(
  runId: string,
  asked: number,
  deps: JobDeps,
  asking: Asking,
) {
  const { nightly, runs, stages, log } = deps;
  const { signal, probeEveryMs } = asking;
  const startedMs = performance.now();
  const isUnwell = inBackground(
    watchSource(async () => {
      try {
        return await stages.sourceLatency(signal);
      } catch (error) {
        signal.throwIfAborted();
        // A failing list does not prevent exports, nor does it show whether they overload
        // the source. If the source is unavailable, the exports will notice.
        log.debug({ err: error, runId }, 'The source did not answer in time');
        return undefined;
      }
    }, probeEveryMs),
  );
  const findStall = watchProgress(runId, deps, asking);
  for (;;) {
    const counts = await nightly.counts(runId, asked);
    await tell(runId, counts, deps);
    if (counts.due + counts.queued === 0) return undefined;
    const run = await runs.get(runId);
    const stopped = run?.params['stopped'];
    if (typeof stopped === 'string') return stopped;
    const absence = run && readAbsence(run);
    const latency = absence === undefined ? isUnwell() : undefined;
    const reason = latency
      ? 'the source answers much slower than usual'
      : await findStall(counts, absence);
    if (reason !== undefined) {
      log.warn(
        { runId, ...counts, ...latency, reason },
        'No more exports in this nightly run',
      );
      await runs.keep(runId, { stopped: reason });
      return reason;
    }
    await fill(runId, counts, deps);
    const pollMs = Math.min(
      POLL_MAX_MS,
      Math.max(POLL_MIN_MS, (performance.now() - startedMs) / 20),
    );
    await sleep(pollMs, undefined, { signal });
  }
}

/**
 * Whether a response took so much longer than usual that the source may be overloaded.
 */
export function isSlow({ lastMs, medianMs }: ListLatency): boolean {
  return (
    lastMs > SLOW_MS || lastMs > SLOWER_TIMES * Math.max(medianMs, USUAL_MIN_MS)
  );
}

/**
 * Probes the source with a small request from time to time, which is the only way to tell
 * whether the exports overload it.
 * @returns a function that probes when a probe is due, and returns the latency once
 *   several consecutive responses were slow
 */
export function watchSource(
  probe: () => Promise<ListLatency | undefined>,
  everyMs = PROBE_EVERY_MS,
): () => Promise<ListLatency | undefined> {
  let probedAtMs = performance.now();
  let slowAnswers = 0;
  return async () => {
    const pauseMs =
      slowAnswers > 0 ? Math.min(PROBE_AGAIN_MS, everyMs) : everyMs;
    if (performance.now() - probedAtMs < pauseMs) return undefined;
    const latency = await probe();
    probedAtMs = performance.now();
    slowAnswers = latency && isSlow(latency) ? slowAnswers + 1 : 0;
    return slowAnswers >= SLOW_ANSWERS_MAX ? latency : undefined;
  };
}

/**
 * Sends requests without waiting for them, so that a slow response delays neither the
 * queue nor the end of the window.
 * @returns a function that returns each response once, and sends a new request if none is
 *   in flight
 */
export function inBackground<Answer>(
  ask: () => Promise<Answer>,
): () => Answer | undefined {
  let answer: Answer | undefined;
  let isAsking = false;

  async function askOnce(): Promise<void> {
    isAsking = true;
    try {
      answer = await ask();
    } catch {
      // The run was told to stop; its own loop will notice.
    } finally {
      isAsking = false;
    }
  }

  return () => {
    const found = answer;
    answer = undefined;
    if (!isAsking) void askOnce();
    return found;
  };
}

/**
 * Watches the progress of a run. Requeues jobs that were lost with their queue, and
 * returns the reason to stop if no worker is processing them.
 */
function watchProgress(
  runId: string,
  { db, nightly, queue, log }: JobDeps,
  asking: Asking,
) {
  const {
    untilMs = Infinity,
    stalledMs = STALLED_MS,
    noProgressMs = NO_PROGRESS_MS,
  } = asking;
  /**
   * The last known number of settled ledgers, when it last changed, and when the queue
   * was last checked.
   */
  let settled = -1;
  let sinceMs = 0;
  let lookedMs = 0;
  return async (
    { done, failed, queued }: NightlyCounts,
    absence: SourceAbsence | undefined,
  ): Promise<string | undefined> => {
    // Uses the clock that recorded the start of the run, because this process's may
    // differ.
    const isWindowOver = (await readNowMs(db)) >= untilMs;
    if (absence !== undefined && (isWindowOver || absence.isGivenUp))
      return `the source was away since ${absence.since} (${absence.code})`;
    if (isWindowOver) return 'NIGHTLY_WINDOW has ended';
    const nowMs = performance.now();
    if (absence !== undefined || done + failed !== settled) {
      sinceMs = nowMs;
      lookedMs = nowMs;
    }
    settled = done + failed;
    const isOver = nowMs - sinceMs > noProgressMs;
    if (!isOver && nowMs - lookedMs <= stalledMs) return undefined;
    lookedMs = nowMs;
    if (await nightly.isExporting()) {
      lookedMs = performance.now();
      sinceMs = lookedMs;
      return undefined;
    }
    if (isOver)
      return (
        'no worker has made progress for a long time; check whether ' +
        'workers for this source are running'
      );
    if ((await queue.open(JOBS.export.queue)) > 0) return undefined;
    log.warn(
      { runId, queued },
      'Jobs were lost with their queue, and have been queued again',
    );
    await nightly.requeue(runId);
    return undefined;
  };
}

async function fill(
  runId: string,
  { due, queued }: NightlyCounts,
  deps: JobDeps,
): Promise<void> {
  const room = Math.min(FEED_MAX, QUEUED_MAX - queued);
  if (room <= 0 || due === 0) return;
  const ledgers = await deps.nightly.take(runId, room);
  const idle = ledgers
    .filter(({ isIdle }) => isIdle)
    .map(({ partyId }) => partyId);
  const batches = ledgers
    .filter(({ isIdle }) => !isIdle)
    .map(({ partyId }) => [partyId]);
  const share = Math.ceil(
    (due + queued) / (BATCHES_A_LEASE * deps.sourceExportConcurrency),
  );
  const size = Math.max(1, Math.min(BATCH_MAX, share));
  batches.push(...cutBatches(idle, size));
  const jobs = batches.map((partyIds) => ({
    name: JOBS.export.name,
    data: { runId, partyIds },
    // A queue remembers the ids of finished jobs, so a requeued job needs a new id.
    jobId: `${runId}.${randomUUID().slice(0, 13)}`,
    priority: PRIORITY.nightly,
  }));
  await deps.queue.add(JOBS.export.queue, jobs);
}

/**
 * Splits ids into batches of at most `sizeMax`, each small enough for a job, because a
 * source's ids may be a kilobyte long.
 */
function cutBatches(ids: readonly string[], sizeMax: number): string[][] {
  const batches: string[][] = [];
  let batch: string[] = [];
  let bytes = 0;
  for (const id of ids) {
    const idBytes = Buffer.byteLength(JSON.stringify(id)) + 1;
    const isFull = batch.length >= sizeMax || bytes + idBytes > BATCH_BYTES_MAX;
    if (batch.length > 0 && isFull) {
      batches.push(batch);
      batch = [];
      bytes = 0;
    }
    batch.push(id);
    bytes += idBytes;
  }
  if (batch.length > 0) batches.push(batch);
  return batches;
}

/** Reports the run's progress, with the export in progress below it. */
async function tell(
  runId: string,
  counts: NightlyCounts,
  { progress }: JobDeps,
) {
  const { due, queued, done, failed } = counts;
  const inHand = queued === 0 ? [] : await progress.read(`${runId}.export`);
  const exports = {
    label: 'exports',
    done: String(done + failed),
    total: String(done + failed + due + queued),
    unit: 'parties',
    note: failed > 0 ? `${failed} failed` : undefined,
  } as const;
  progress.report(runId, [
    exports,
    ...inHand.map((line) => ({ ...line, isPart: true })),
  ]);
}
