/** Exports one party's ledger entries: on demand as a run of its own, at night as a unit of the night's list. */
import { z } from 'zod';
import { FencedError, PermanentError, RetryableError, UnreachableError } from '../src/core/errors.ts';
import { canonicalId } from '../src/core/ids.ts';
import { formatInstant, parseInstant, type Micros } from '../src/core/time.ts';
import type { SourceClock } from '../src/export/plan/source-clock.ts';
import type { Run } from '../src/runs/store/run-store.ts';
import type { JobContext, JobDefinition, JobDeps, ReportProgress } from './job.ts';
import { exportKey } from './progress-hints.ts';
import { describeError, workRun } from './work-run.ts';

const id = z.string().refine((text) => canonicalId(text) === text, 'a canonical id');
const instant = z.string().transform((text, context): Micros => {
  const parsed = parseInstant(text);
  if (parsed !== undefined) return parsed;
  context.addIssue('an RFC 3339 instant');
  return z.NEVER;
});
/** Idle parties share a job: the queue would cost more than their questions. */
export const BATCH_MAX = 100;

const payload = z.strictObject({ runId: z.uuid(), partyIds: z.array(id).min(1).max(BATCH_MAX).optional() });
const params = z.object({ assetId: id.optional(), from: instant.optional(), to: instant.optional() });
const storedClock = z.object({ seen: instant, closedTo: instant, from: z.enum(['source', 'guessed']) });

/** Tries of one unit in one night, with the queue's back-off between them. */
const UNIT_TRIES_MAX = 4;

export const exportPartyJob: JobDefinition<z.infer<typeof payload>> = {
  name: 'export-party',
  queue: 'export',
  payload,
  handle: ({ runId, partyIds }, deps, context) =>
    partyIds === undefined
      ? workRun(runId, deps, context, (run, signal) => exportOnDemand(run, deps, signal))
      : exportUnits(runId, partyIds, deps, context),
};

async function exportOnDemand(
  run: Run,
  deps: JobDeps,
  signal: AbortSignal,
): ReturnType<JobDeps['stages']['export']> {
  const range = params.parse(run.params);
  await deps.stages.resumeRebuild(signal);
  const clock = await fixClock(run, deps, signal);
  const outcome = await deps.stages.export(
    { runId: run.runId, partyId: run.subject, ...range, clock },
    { signal, onProgress: reportTo([run.runId, exportKey(run.subject)], deps) },
  );
  await deps.stages.recordCoverage(signal);
  return outcome;
}

function reportTo(keys: readonly string[], deps: JobDeps): ReportProgress {
  return (lines) => {
    for (const key of keys) deps.progress.report(key, lines);
  };
}

/** Read once a run and kept with it: a resumed run closes at the same instant. */
export async function fixClock(run: Run, deps: JobDeps, signal: AbortSignal): Promise<SourceClock> {
  const stored = storedClock.safeParse(run.params['clock']);
  if (stored.success) return stored.data;
  const clock = await deps.stages.clock(signal);
  const kept = { ...clock, seen: formatInstant(clock.seen), closedTo: formatInstant(clock.closedTo) };
  await deps.runs.keep(run.runId, { clock: kept });
  return clock;
}

/** Units of the night's list, one after another; a job that is delivered again leaves out what is settled. */
async function exportUnits(
  runId: string,
  partyIds: readonly string[],
  deps: JobDeps,
  context: JobContext,
): Promise<void> {
  for (const partyId of await deps.nightly.unsettled(runId, partyIds)) {
    const run = await deps.runs.get(runId);
    if (run === undefined || run.state !== 'running' || typeof run.params['stopped'] === 'string') return;
    await exportUnit(run, partyId, deps, context);
  }
}

/** Settles its unit whatever happens, save where trying again may help. */
async function exportUnit(run: Run, partyId: string, deps: JobDeps, context: JobContext): Promise<void> {
  const { signal } = context;
  const { runId } = run;
  try {
    const clock = await fixClock(run, deps, signal);
    const call = { signal, onProgress: reportTo([`${runId}.export`, exportKey(partyId)], deps) };
    const outcome = await deps.costs.charge(runId, () => deps.stages.export({ runId, partyId, clock }, call));
    await deps.nightly.settle(runId, partyId, 'done', { verdict: outcome.verdict, ...outcome.evidence });
  } catch (error) {
    if (signal.aborted) throw error;
    const mayPass = error instanceof RetryableError || error instanceof FencedError;
    if (mayPass && context.attempt < UNIT_TRIES_MAX) throw error;
    if (!mayPass && !(error instanceof PermanentError)) {
      deps.log.error({ err: error, runId, partyId }, 'Export met an unexpected error');
    }
    await deps.nightly.settle(runId, partyId, 'failed', { error: describeError(error) });
    // Asking a source that is away for every other party would take all night.
    if (error instanceof UnreachableError)
      await deps.runs.keep(runId, { stopped: 'the source could not be reached' });
  }
}
