/** A mirror that holds nothing does not wait for its schedule. */
import { enqueueRun } from './enqueue.ts';
import type { JobDeps } from './job.ts';

/** One for each mirror, however many workers start at once. */
const SCHEDULE_KEY = 'first';

/** Starts the first nightly run where there has been none of any kind. */
export async function startFirstRun(deps: Pick<JobDeps, 'runs' | 'queue' | 'log'>): Promise<void> {
  const former = await deps.runs.list({ kind: 'nightly', limit: 1 });
  if (former.length > 0) return;
  const run = await deps.runs.create({ kind: 'nightly', subject: 'first', scheduleKey: SCHEDULE_KEY });
  deps.log.info({ runId: run.runId }, 'The mirror holds nothing: its first nightly run starts now');
  await enqueueRun(run, deps);
}
