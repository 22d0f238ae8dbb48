/** The night's exports: who is asked, in which order, and when to leave the source alone. */
import { setTimeout as sleep } from 'node:timers/promises';
import { formatInstant } from '../src/core/time.ts';
import { worst, type Outcome } from '../src/core/verdict.ts';
import type { NightScope } from '../src/runs/store/night-scope.ts';
import type { DueUnit, Estimate, NightlyCounts, Plan } from '../src/runs/store/nightly-store.ts';
import type { Run } from '../src/runs/store/run-store.ts';
import { BATCH_MAX, exportPartyJob, fixClock } from './export-party.ts';
import { PRIORITY, type JobDeps, type ProgressLine } from './job.ts';
import { SourceWatch } from './source-watch.ts';

/** While asking everyone fits into this, everyone is asked every night. */
const NIGHT_MS = 6 * 3_600_000;
/** A sixth of the shortest usual retention of ledgers (six months): nothing can be lost by waiting. */
const IDLE_NIGHTS_MAX = 28;
/** Units in the queue at once; the rest of the list waits in Postgres. */
const QUEUED_MAX = 1_000;
const FEED_MAX = 200;
const POLL_MS = 200;
/** No unit settled for this long: jobs may have been lost with their queue. Queueing twice is harmless. */
const REQUEUE_AFTER_MS = 60_000;
const FAILED_LISTED_MAX = 20;

/** Whether a night is long enough to ask every party, by what an export took lately. */
export function everyPartyFits(parties: number, secondsPerExport: number | undefined): boolean {
  return secondsPerExport === undefined || parties * secondsPerExport * 1_000 <= NIGHT_MS;
}

type Night = Pick<JobDeps, 'nightly' | 'nightlyParties'>;

/** Whom tonight is about, by the configuration and by what an export took lately. */
async function nightScope({ nightly, nightlyParties }: Night): Promise<NightScope> {
  const partyIds = nightlyParties.kind === 'list' ? nightlyParties.ids : undefined;
  const { parties, secondsPerExport } = await nightly.estimate(partyIds);
  return { partyIds, everyParty: everyPartyFits(parties, secondsPerExport), idleNightsMax: IDLE_NIGHTS_MAX };
}

/** What a night that began now would ask; nothing is written. */
export async function previewNight(night: Night): Promise<Estimate & Plan> {
  const scope = await nightScope(night);
  const estimate = await night.nightly.estimate(scope.partyIds);
  return { ...estimate, ...(await night.nightly.preview(scope)) };
}

/**
 * Asks for every due party's new entries.
 * `complete`: every due unit is closed up to tonight's `closedTo`, and no party is later than promised.
 */
export async function exportDue(
  run: Run,
  deps: JobDeps,
  signal: AbortSignal,
  watch = new SourceWatch(),
): Promise<Outcome> {
  const clock = await fixClock(run, deps, signal);
  const scope = await nightScope(deps);
  const plan = await deps.nightly.plan({ ...scope, runId: run.runId, exportsMax: deps.nightlyExportsMax });
  await deps.nightly.requeue(run.runId);
  const stopped = await feedExports(run, deps, signal, watch);
  const counts = await deps.nightly.counts(run.runId);
  const summary = await deps.nightly.summary(run.runId, FAILED_LISTED_MAX);
  const { late, oldestFrontier } = await deps.nightly.lateness(IDLE_NIGHTS_MAX);
  const deferral = await deps.nightly.deferral(run.runId);
  const left = counts.due + counts.queued;
  return {
    verdict: worst([
      counts.failed + left + late > 0 ? 'incomplete' : 'complete',
      summary.suspicious > 0 ? 'suspicious' : 'complete',
    ]),
    evidence: {
      closedTo: formatInstant(clock.closedTo),
      clock: clock.from,
      due: counts.done + counts.failed + counts.deferred + left,
      parties: counts.done,
      failed: counts.failed,
      suspicious: summary.suspicious,
      deferred: counts.deferred,
      ...(counts.deferred === 0
        ? {}
        : {
            deferredSince: deferral.oldestAskedAt ?? null,
            deferredNeverAsked: deferral.neverAsked,
          }),
      unasked: left,
      notDue: plan.notDue,
      late,
      oldestFrontier: oldestFrontier ?? null,
      newRows: summary.rows.toString(),
      newBytes: summary.bytes.toString(),
      newSegments: summary.segments.toString(),
      ...(stopped === undefined ? {} : { reason: `stopped early: ${stopped}` }),
      ...(summary.failed.length === 0 ? {} : { failures: summary.failed }),
    },
  };
}

/**
 * Keeps the queue filled from the night's list until every unit is settled.
 * @returns why it stopped before that, where it did
 */
async function feedExports(
  run: Run,
  deps: JobDeps,
  signal: AbortSignal,
  watch: SourceWatch,
): Promise<string | undefined> {
  const lull = new Lull();
  for (;;) {
    const counts = await deps.nightly.counts(run.runId);
    await tellExports(run.runId, counts, deps);
    const stopped = (await deps.runs.get(run.runId))?.params['stopped'];
    if (typeof stopped === 'string') return stopped;
    if (counts.due + counts.queued === 0) return undefined;
    if (lull.lasts(counts)) await deps.nightly.requeue(run.runId);
    const room = Math.min(FEED_MAX, QUEUED_MAX - counts.queued);
    if (room > 0) await queueUnits(run.runId, await deps.nightly.take(run.runId, room), deps);
    const latency = await watch.unwell(() => deps.stages.sourceLatency(signal));
    if (latency !== undefined) {
      deps.log.warn({ ...latency, runId: run.runId }, 'The source is unwell: no more exports this night');
      await deps.runs.keep(run.runId, { stopped: 'the source answers much slower than usual' });
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}

/** Notices that nothing has been settled for long. */
class Lull {
  #settled = -1;
  #sinceMs = 0;

  lasts(counts: NightlyCounts): boolean {
    const settled = counts.done + counts.failed;
    const isOver = settled !== this.#settled;
    const lasted = !isOver && performance.now() - this.#sinceMs > REQUEUE_AFTER_MS;
    if (isOver || lasted) this.#sinceMs = performance.now();
    this.#settled = settled;
    return lasted;
  }
}

async function queueUnits(runId: string, units: readonly DueUnit[], deps: JobDeps): Promise<void> {
  const idle = units.filter((unit) => unit.isIdle).map((unit) => unit.partyId);
  const batches = units.filter((unit) => !unit.isIdle).map((unit) => [unit.partyId]);
  for (let start = 0; start < idle.length; start += BATCH_MAX)
    batches.push(idle.slice(start, start + BATCH_MAX));
  await deps.queue.add(
    exportPartyJob.queue,
    batches.map((partyIds) => ({
      name: exportPartyJob.name,
      data: { runId, partyIds },
      jobId: `${runId}.${partyIds[0] ?? ''}`,
      priority: PRIORITY.nightly,
    })),
  );
}

/** How far the night's list is, and below it the export in hand. */
async function tellExports(runId: string, counts: NightlyCounts, deps: JobDeps): Promise<void> {
  const inHand = await deps.progress.read(`${runId}.export`);
  deps.progress.report(runId, [
    exportsLine(counts),
    ...(counts.queued === 0 ? [] : inHand.map((line) => ({ ...line, isPart: true }))),
  ]);
}

function exportsLine(counts: NightlyCounts): ProgressLine {
  const done = counts.done + counts.failed;
  return {
    label: 'exports',
    done: String(done),
    total: String(done + counts.due + counts.queued),
    unit: 'parties',
    ...(counts.failed > 0 ? { note: `${counts.failed} failed` } : {}),
  };
}
