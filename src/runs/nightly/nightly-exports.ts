/** The exports of a nightly run: who is asked, in which order, until when, and when to leave the source alone. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { formatInstant } from '../../core/time.ts';
import type { VerdictWithEvidence } from '../../core/verdict.ts';
import { fixClock } from './export-ledgers.ts';
import { BATCH_MAX, JOBS, PRIORITY, type JobDeps } from '../job.ts';
import { SourceWatch } from './source-watch.ts';
import type { NightlyScope } from '../store/nightly/nightly-scope.ts';
import type { Estimate } from '../store/nightly/nightly-plans.ts';
import type { NightlyCounts } from '../store/nightly/nightly-store.ts';
import type { Run } from '../store/run.ts';

/** While asking everyone fits into this, everyone is asked every night. */
const NIGHT_MS = 6 * 3_600_000;
/** A sixth of the shortest usual retention of ledgers (six months): nothing can be lost by waiting. */
const IDLE_NIGHTS_MAX = 28;
/** Ledgers in the queue at once; the rest waits in Postgres. */
const QUEUED_MAX = 1_000;
const FEED_MAX = 400;
/** So that no worker is left without a job while others still have many. */
const BATCHES_A_LEASE = 4;
const POLL_MIN_MS = 100;
const POLL_MAX_MS = 2_000;
/** Nothing settled for this long: the queue is asked whether it still has the jobs. */
const STALLED_MS = 60_000;
/** Nothing settled, and nobody exporting, for this long: no worker takes part. */
const NO_PROGRESS_MS = 600_000;

/** Whether a night is long enough to ask every party, by what an export took lately. */
export function everyPartyFits(parties: number, secondsPerExport: number | null): boolean {
  return secondsPerExport === null || parties * secondsPerExport * 1_000 <= NIGHT_MS;
}

/** Whom the run is about, by the configuration and by what an export took lately. */
export async function readNightlyScope({
  plans,
  nightlyParties,
}: Pick<JobDeps, 'plans' | 'nightlyParties'>): Promise<{ scope: NightlyScope; estimate: Estimate }> {
  const partyIds = nightlyParties.kind === 'list' ? nightlyParties.ids : undefined;
  const estimate = await plans.estimate(partyIds);
  const everyParty = everyPartyFits(estimate.parties, estimate.secondsPerExport);
  return { scope: { partyIds, everyParty, idleNightsMax: IDLE_NIGHTS_MAX }, estimate };
}

interface ExportLimits {
  /** When asking ends, in milliseconds since 1970; undefined: when everyone was asked. */
  readonly untilMs?: number | undefined;
  readonly noProgressMs?: number;
  readonly stalledMs?: number;
}

/**
 * Asks for every due party's new entries.
 * `complete`: every due ledger was asked and proven up to the run's `closedTo`, none was left, and no party is later
 * than promised.
 */
export async function exportDue(
  run: Run,
  deps: JobDeps,
  signal: AbortSignal,
  watch = new SourceWatch(),
  limits: ExportLimits = {},
): Promise<VerdictWithEvidence> {
  const { runId } = run;
  const clock = await fixClock(run, deps, signal);
  const { scope } = await readNightlyScope(deps);
  const plan = await deps.plans.plan({ ...scope, runId, exportsMax: deps.nightlyExportsMax });
  await deps.nightly.requeue(runId);
  const startedMs = performance.now();
  const before = await deps.nightly.counts(runId, plan.asked);
  const stopped = await new ExportFeed(runId, plan.asked, deps, watch, limits).run(signal);
  const { done, failed, due, queued } = await deps.nightly.counts(runId, plan.asked);
  const exported = done - before.done;
  const summary = await deps.nightly.summary(runId);
  const lateness = await deps.plans.lateness(IDLE_NIGHTS_MAX, scope.partyIds);
  const { asked, deferred, deferredSince, deferredNeverAsked, notDue } = plan;
  const unasked = due + queued;
  const lacking = failed + unasked + lateness.late + deferred + summary.incomplete;
  return {
    verdict: summary.suspicious > 0 ? 'suspicious' : lacking > 0 ? 'incomplete' : 'complete',
    // What is undefined is left out of the evidence.
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
      secondsPerExport: exported === 0 ? undefined : (performance.now() - startedMs) / 1_000 / exported,
      reason: stopped && `stopped early: ${stopped}`,
    },
  };
}

/** Keeps the queue filled until every ledger is settled, the window is over, or nobody makes progress. */
class ExportFeed {
  readonly #runId: string;
  readonly #asked: number;
  readonly #deps: JobDeps;
  readonly #watch: SourceWatch;
  readonly #limits: ExportLimits;
  /** How many were settled when that number changed last, when that was, and when the queue was asked last. */
  #settled = -1;
  #sinceMs = 0;
  #lookedMs = 0;

  constructor(runId: string, asked: number, deps: JobDeps, watch: SourceWatch, limits: ExportLimits) {
    this.#runId = runId;
    this.#asked = asked;
    this.#deps = deps;
    this.#watch = watch;
    this.#limits = limits;
  }

  /** @returns why it stopped before every ledger was settled, where it did */
  async run(signal: AbortSignal): Promise<string | undefined> {
    const runId = this.#runId;
    const { nightly, runs, stages, log } = this.#deps;
    const startedMs = performance.now();
    for (;;) {
      const counts = await nightly.counts(runId, this.#asked);
      await this.#tell(counts);
      if (counts.due + counts.queued === 0) return undefined;
      const stopped = (await runs.get(runId))?.params['stopped'];
      if (typeof stopped === 'string') return stopped;
      const latency = await this.#watch.unwell(() => stages.sourceLatency(signal));
      const reason =
        latency === undefined
          ? await this.#findReasonToStop(counts)
          : 'the source answers much slower than usual';
      if (reason !== undefined) {
        log.warn({ runId, ...counts, ...latency, reason }, 'No more exports in this nightly run');
        await runs.keep(runId, { stopped: reason });
        return reason;
      }
      await this.#fill(counts);
      const pollMs = Math.min(POLL_MAX_MS, Math.max(POLL_MIN_MS, (performance.now() - startedMs) / 20));
      await sleep(pollMs, undefined, { signal });
    }
  }

  /** What was lost with its queue is queued again; what nobody works ends the asking. */
  async #findReasonToStop({ done, failed, queued }: NightlyCounts): Promise<string | undefined> {
    const { nightly, queue, log } = this.#deps;
    const { untilMs = Infinity, stalledMs = STALLED_MS, noProgressMs = NO_PROGRESS_MS } = this.#limits;
    if (Date.now() >= untilMs) return 'the time of NIGHTLY_WINDOW is over';
    const nowMs = performance.now();
    if (done + failed !== this.#settled) this.#sinceMs = this.#lookedMs = nowMs;
    this.#settled = done + failed;
    const isOver = nowMs - this.#sinceMs > noProgressMs;
    if (!isOver && nowMs - this.#lookedMs <= stalledMs) return undefined;
    this.#lookedMs = nowMs;
    if (await nightly.isExporting()) {
      this.#sinceMs = this.#lookedMs = performance.now();
      return undefined;
    }
    if (isOver)
      return 'no worker has made progress for long; look whether workers of this source are running';
    if ((await queue.open(JOBS.export.queue)) > 0) return undefined;
    log.warn({ runId: this.#runId, queued }, 'Jobs were lost with their queue, and are queued again');
    await nightly.requeue(this.#runId);
    return undefined;
  }

  async #fill({ due, queued }: NightlyCounts): Promise<void> {
    const room = Math.min(FEED_MAX, QUEUED_MAX - queued);
    if (room <= 0 || due === 0) return;
    const runId = this.#runId;
    const { nightly, queue, sourceExportConcurrency } = this.#deps;
    const ledgers = await nightly.take(runId, room);
    const idle = ledgers.filter(({ isIdle }) => isIdle).map(({ partyId }) => partyId);
    const batches = ledgers.filter(({ isIdle }) => !isIdle).map(({ partyId }) => [partyId]);
    const share = Math.ceil((due + queued) / (BATCHES_A_LEASE * sourceExportConcurrency));
    const size = Math.max(1, Math.min(BATCH_MAX, share));
    for (let start = 0; start < idle.length; start += size) batches.push(idle.slice(start, start + size));
    const jobs = batches.map((partyIds) => ({
      name: JOBS.export.name,
      data: { runId, partyIds },
      // A queue remembers the ids of ended jobs: what is queued again needs another.
      jobId: `${runId}.${randomUUID().slice(0, 13)}`,
      priority: PRIORITY.nightly,
    }));
    await queue.add(JOBS.export.queue, jobs);
  }

  /** How far the run is, and below it the export in hand. */
  async #tell({ due, queued, done, failed }: NightlyCounts): Promise<void> {
    const { progress } = this.#deps;
    const inHand = queued === 0 ? [] : await progress.read(`${this.#runId}.export`);
    const exports = {
      label: 'exports',
      done: String(done + failed),
      total: String(done + failed + due + queued),
      unit: 'parties',
      note: failed > 0 ? `${failed} failed` : undefined,
    } as const;
    progress.report(this.#runId, [exports, ...inHand.map((line) => ({ ...line, isPart: true }))]);
  }
}
