/** Exports one party's ledger entries: on demand as a run of its own, at night as a unit of the night's list. */
import { z } from 'zod';
import { FencedError, PermanentError, RetryableError, UnreachableError } from '../src/core/errors.ts';
import { canonicalId } from '../src/core/ids.ts';
import { formatInstant, parseInstant, type Micros } from '../src/core/time.ts';
import type { SourceClock } from '../src/export/source-clock.ts';
import type { Run } from '../src/warehouse/run-store.ts';
import type { JobContext, JobDefinition, JobDeps } from './job.ts';
import { describeError, workRun } from './work-run.ts';

const id = z.string().refine((text) => canonicalId(text) === text, 'a canonical id');
const instant = z.string().transform((text, context): Micros => {
  const parsed = parseInstant(text);
  if (parsed !== undefined) return parsed;
  context.addIssue('an RFC 3339 instant');
  return z.NEVER;
});
const payload = z.strictObject({ runId: z.uuid(), partyId: id.optional() });
const params = z.object({ assetId: id.optional(), from: instant.optional(), to: instant.optional() });
const storedClock = z.object({ seen: instant, closedTo: instant, from: z.enum(['source', 'guessed']) });

/** Tries of one unit in one night, with the queue's back-off between them. */
const UNIT_TRIES_MAX = 4;

export const exportPartyJob: JobDefinition<z.infer<typeof payload>> = {
  name: 'export-party',
  queue: 'export',
  payload,
  handle: ({ runId, partyId }, deps, context) =>
    partyId === undefined
      ? workRun(runId, deps, context, (run, signal) => exportOnDemand(run, deps, signal))
      : exportUnit(runId, partyId, deps, context),
};

async function exportOnDemand(
  run: Run,
  deps: JobDeps,
  signal: AbortSignal,
): ReturnType<JobDeps['stages']['export']> {
  const range = params.parse(run.params);
  const clock = await fixClock(run, deps, signal);
  return deps.stages.export(
    { runId: run.runId, partyId: run.subject, ...range, clock },
    { signal, onProgress: (lines) => deps.progress.report(run.runId, lines) },
  );
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

/** Settles its unit whatever happens, save where trying again may help. */
async function exportUnit(runId: string, partyId: string, deps: JobDeps, context: JobContext): Promise<void> {
  const run = await deps.runs.get(runId);
  if (run === undefined || run.state !== 'running' || typeof run.params['stopped'] === 'string') return;
  const { signal } = context;
  try {
    const clock = await fixClock(run, deps, signal);
    const outcome = await deps.stages.export(
      { runId, partyId, clock },
      { signal, onProgress: (lines) => deps.progress.report(`${runId}.export`, lines) },
    );
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
