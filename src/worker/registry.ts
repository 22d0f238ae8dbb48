/** Every job there is, and how a delivered one finds its handler. */
import { PermanentError } from '../core/errors.ts';
import type { WorkedJob } from '../queue/queue-worker.ts';
import { exportPartyJob } from '../../jobs/export-party.ts';
import type { JobDeps } from '../runs/job.ts';
import { loadSegmentsJob } from '../../jobs/load-segments.ts';
import { nightlyJob } from '../../jobs/nightly.ts';
import { verifyJob } from '../../jobs/verify.ts';
import { syncListJob } from '../../jobs/sync-list.ts';

const JOBS = [syncListJob, exportPartyJob, loadSegmentsJob, nightlyJob, verifyJob] as const;

/** @throws PermanentError `JOB_UNKNOWN` or `JOB_PAYLOAD` where another version put it into the queue */
export async function handleJob(job: WorkedJob, deps: JobDeps, signal: AbortSignal): Promise<void> {
  const definition = JOBS.find((candidate) => candidate.name === job.name);
  if (definition === undefined) {
    throw new PermanentError(`Cannot work job ${job.id}: this version knows no job named ${job.name}`, {
      code: 'JOB_UNKNOWN',
    });
  }
  const parsed = definition.payload.safeParse(job.data);
  if (!parsed.success) {
    throw new PermanentError(`Cannot work job ${job.id}: its payload is not that of ${job.name}`, {
      code: 'JOB_PAYLOAD',
      cause: parsed.error,
    });
  }
  const context = { signal, dueMs: job.dueMs, attempt: job.attempt };
  // The payload was parsed by this very definition.
  await definition.handle(parsed.data as never, deps, context);
}
