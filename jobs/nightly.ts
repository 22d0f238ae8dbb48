/**
 * The nightly run: both lists, every due party's new ledger entries, load, lake, verify. Each step finds
 * what an earlier delivery of this job did; the verdict is computed from Postgres, not from the queue.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { RetryableError } from '../src/core/errors.ts';
import { formatInstant } from '../src/core/time.ts';
import { worst, type Outcome, type Verdict } from '../src/core/verdict.ts';
import type { NightlyCounts } from '../src/warehouse/nightly-store.ts';
import type { NewRun, Run } from '../src/warehouse/run-store.ts';
import { exportPartyJob, fixClock } from './export-party.ts';
import { PRIORITY, type JobDefinition, type JobDeps, type ProgressLine, type SourceCost } from './job.ts';
import { loadSegmentsJob } from './load-segments.ts';
import { walkListJob } from './walk-list.ts';
import { workRun } from './work-run.ts';

const payload = z.union([
  z.strictObject({ runId: z.uuid() }),
  z.strictObject({ scheduled: z.literal(true) }),
]);

/** Party jobs in the queue at once; the rest of the list waits in Postgres. */
const QUEUED_MAX = 1_000;
const FEED_MAX = 200;
const POLL_MS = 200;
/** No unit settled for this long: jobs may have been lost with their queue. Queueing twice is harmless. */
const REQUEUE_AFTER_MS = 60_000;
const FAILED_LISTED_MAX = 20;

export const nightlyJob: JobDefinition<z.infer<typeof payload>> = {
  name: 'nightly',
  queue: 'nightly',
  payload,
  handle: async (given, deps, context) => {
    const runId = 'runId' in given ? given.runId : await claimSlot(context.dueMs, deps);
    if (runId === undefined) return;
    await workRun(runId, deps, context, (run, signal) => runNight(run, deps, signal));
  },
};

/** One run per slot, however often the schedule's job is delivered; none while the last is still going. */
async function claimSlot(dueMs: number, deps: JobDeps): Promise<string | undefined> {
  const slot = `nightly ${new Date(dueMs).toISOString()}`;
  const going = await deps.runs.list({ kind: 'nightly', states: ['queued', 'running'], limit: 10 });
  const other = going.find((run) => run.slot !== slot);
  if (other !== undefined) {
    deps.log.warn({ slot, runId: other.runId }, 'Nightly run skipped: the last one is still going');
    return undefined;
  }
  const run = await deps.runs.create({ kind: 'nightly', subject: 'scheduled', slot });
  return run.runId;
}

async function runNight(run: Run, deps: JobDeps, signal: AbortSignal): Promise<Outcome> {
  const costBefore = deps.stages.sourceCost();
  const lists = await walkLists(run, deps, signal);
  const isAway = lists.some((list) => list.verdict === 'failed');
  if (isAway)
    return { verdict: 'failed', evidence: { lists: listEvidence(lists), error: firstError(lists) } };
  const exports = await exportDue(run, deps, signal);
  const load = await workChild(run, { kind: 'load', subject: 'warehouse and lake' }, deps, signal);
  const verify = await deps.stages.verify(
    { runId: run.runId, deep: false },
    { signal, onProgress: (lines) => deps.progress.report(run.runId, lines) },
  );
  await deps.stages.tidy(signal);
  const verdicts: Verdict[] = [
    ...lists.map((list) => list.verdict ?? 'failed'),
    exports.verdict,
    load.verdict ?? 'failed',
    verify.verdict,
  ];
  return {
    verdict: worst(verdicts),
    evidence: {
      lists: listEvidence(lists),
      exports: { verdict: exports.verdict, ...exports.evidence },
      load: { verdict: load.verdict, ...load.evidence },
      verify: { verdict: verify.verdict, ...verify.evidence },
      source: costSince(costBefore, deps.stages.sourceCost()),
    },
  };
}

async function walkLists(run: Run, deps: JobDeps, signal: AbortSignal): Promise<readonly Run[]> {
  const walks = ['parties', 'checkpoints'].map((list) =>
    workChild(run, { kind: 'walk', subject: list }, deps, signal),
  );
  return Promise.all(walks);
}

/** Starts the run below this one, or finds it, and waits until it has its verdict. */
async function workChild(
  parent: Run,
  wanted: Pick<NewRun, 'kind' | 'subject'>,
  deps: JobDeps,
  signal: AbortSignal,
): Promise<Run> {
  const child = await deps.runs.create({ ...wanted, parentRunId: parent.runId });
  const job = wanted.kind === 'walk' ? walkListJob : loadSegmentsJob;
  for (let waitedMs = 0; ; waitedMs += POLL_MS) {
    const now = await deps.runs.get(child.runId);
    if (now === undefined)
      throw new RetryableError(`Cannot follow run ${child.runId}: it is gone`, { code: 'RUN_GONE' });
    if (now.state === 'done' || now.state === 'cancelled') return now;
    if (waitedMs % REQUEUE_AFTER_MS === 0) {
      await deps.queue.add(job.queue, [
        {
          name: job.name,
          data: { runId: child.runId },
          jobId: `${child.runId}.${now.attempts}`,
          priority: PRIORITY.nightly,
        },
      ]);
    }
    const lines = await deps.progress.read(child.runId);
    if (lines.length > 0) deps.progress.report(parent.runId, lines);
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function exportDue(run: Run, deps: JobDeps, signal: AbortSignal): Promise<Outcome> {
  const clock = await fixClock(run, deps, signal);
  const selection = deps.nightlyParties;
  await deps.nightly.plan({
    runId: run.runId,
    partyIds: selection.kind === 'list' ? selection.ids : undefined,
    exportsMax: deps.nightlyExportsMax,
  });
  await deps.nightly.requeue(run.runId);
  await feedExports(run, deps, signal);
  const counts = await deps.nightly.counts(run.runId);
  const summary = await deps.nightly.summary(run.runId, FAILED_LISTED_MAX);
  const left = counts.due + counts.queued;
  const verdicts: Verdict[] = [
    counts.failed + left > 0 ? 'incomplete' : 'complete',
    summary.suspicious > 0 ? 'suspicious' : 'complete',
  ];
  return {
    verdict: worst(verdicts),
    evidence: {
      closedTo: formatInstant(clock.closedTo),
      clock: clock.from,
      parties: counts.done,
      failed: counts.failed,
      suspicious: summary.suspicious,
      deferred: counts.deferred,
      unasked: left,
      newRows: summary.rows.toString(),
      newBytes: summary.bytes.toString(),
      newSegments: summary.segments.toString(),
      ...(summary.failed.length === 0 ? {} : { failures: summary.failed }),
    },
  };
}

/** Keeps the queue filled from the night's list until every unit is settled or the source went away. */
async function feedExports(run: Run, deps: JobDeps, signal: AbortSignal): Promise<void> {
  let settled = -1;
  let settledAtMs = performance.now();
  for (;;) {
    const counts = await deps.nightly.counts(run.runId);
    const now = await deps.runs.get(run.runId);
    if (counts.due + counts.queued === 0 || typeof now?.params['stopped'] === 'string') return;
    if (counts.done + counts.failed !== settled) {
      settled = counts.done + counts.failed;
      settledAtMs = performance.now();
    } else if (performance.now() - settledAtMs > REQUEUE_AFTER_MS) {
      await deps.nightly.requeue(run.runId);
      settledAtMs = performance.now();
    }
    const room = Math.min(FEED_MAX, QUEUED_MAX - counts.queued);
    const taken = room > 0 ? await deps.nightly.take(run.runId, room) : [];
    await deps.queue.add(
      exportPartyJob.queue,
      taken.map((partyId) => ({
        name: exportPartyJob.name,
        data: { runId: run.runId, partyId },
        jobId: `${run.runId}.${partyId}`,
        priority: PRIORITY.nightly,
      })),
    );
    deps.progress.report(run.runId, [
      exportsLine(counts),
      ...(await deps.progress.read(`${run.runId}.export`)),
    ]);
    await sleep(POLL_MS, undefined, { signal });
  }
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

/** Counters of this process, as they rose while the night was worked here; other workers count their own. */
function costSince(before: SourceCost, after: SourceCost): SourceCost {
  return {
    requests: {
      lists: after.requests.lists - before.requests.lists,
      exports: after.requests.exports - before.requests.exports,
    },
    retries: after.retries - before.retries,
    failures: after.failures - before.failures,
    bytes: after.bytes - before.bytes,
    waitedMs: after.waitedMs - before.waitedMs,
  };
}

function listEvidence(lists: readonly Run[]): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    lists.map((list) => [list.subject, { verdict: list.verdict, runId: list.runId, ...list.evidence }]),
  );
}

function firstError(lists: readonly Run[]): unknown {
  return lists.map((list) => list.evidence['error']).find((error) => error !== undefined);
}
