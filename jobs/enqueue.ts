/** Puts a run's job into its queue; a run that lost its job is put there again. */
import type { Run } from '../src/warehouse/run-store.ts';
import { exportPartyJob } from './export-party.ts';
import { PRIORITY, type JobDeps } from './job.ts';
import { loadSegmentsJob } from './load-segments.ts';
import { nightlyJob } from './nightly.ts';
import { walkListJob } from './walk-list.ts';

const JOB_BY_KIND = {
  walk: walkListJob,
  export: exportPartyJob,
  load: loadSegmentsJob,
  nightly: nightlyJob,
} as const;

/** Not renewed for this long: the run's process is gone. */
const STALE_MS = 30_000;

/** A run of a kind that has no job (verify is worked where it is asked for) is left alone. */
export async function enqueueRun(run: Run, deps: Pick<JobDeps, 'queue'>): Promise<void> {
  if (run.kind === 'verify') return;
  const job = JOB_BY_KIND[run.kind];
  await deps.queue.add(job.queue, [
    {
      name: job.name,
      data: { runId: run.runId },
      jobId: `${run.runId}.${run.attempts}`,
      priority: PRIORITY.onDemand,
    },
  ]);
}

/** Runs whose process or job is gone are queued again; a run that nobody can resume is closed. */
export async function reconcileRuns(deps: Pick<JobDeps, 'queue' | 'runs' | 'log'>): Promise<void> {
  for (const run of await deps.runs.stale(STALE_MS)) {
    if (run.kind === 'verify') {
      const error = { code: 'ABANDONED', message: 'its process ended before it was done' };
      await deps.runs.finish(run.runId, 'failed', { error });
    } else if (run.parentRunId === undefined) {
      // Runs below another are its own affair: it queues them again itself.
      deps.log.info({ runId: run.runId, kind: run.kind, subject: run.subject }, 'Run taken up again');
      await enqueueRun(run, deps);
    }
  }
}
