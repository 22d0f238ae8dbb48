/** The nightly run, as its schedule or somebody has asked for it. */
import { z } from 'zod';
import { JOBS, type JobDefinition, type JobDeps } from '../src/runs/job.ts';
import { reportFailedNightly, runNightly } from '../src/runs/nightly/nightly-run.ts';
import { sendNotices } from '../src/runs/report/notify.ts';
import { nightlyScheduleKey } from '../src/runs/nightly/schedule.ts';
import { refuseOtherSchedule, workRun } from '../src/runs/work-run.ts';
import { runDocument } from '../src/runs/run-document.ts';

const payload = z.union([
  z.strictObject({ runId: z.uuid() }),
  z.strictObject({ scheduled: z.literal(true), source: z.string().max(64).optional() }),
]);

export const nightlyJob: JobDefinition<z.infer<typeof payload>> = {
  ...JOBS.nightly,
  payload,
  handle: async (given, deps, context) => {
    if (!('runId' in given)) refuseOtherSchedule('the scheduled nightly run', given.source, deps);
    const runId = 'runId' in given ? given.runId : await claimScheduled(context.dueMs, deps);
    if (runId === undefined) return;
    await workRun(
      runId,
      deps,
      context,
      (run, call) => runNightly(run, deps, call),
      (run, result, signal) => reportFailedNightly(run, result, deps, signal),
    );
    const ended = await deps.runs.get(runId);
    if (ended?.state === 'done') deps.log.info({ report: runDocument(ended) }, 'Nightly report');
    await sendNotices(deps);
  },
};

/** One run for each scheduled time, however often its job is delivered; none while the last is still going. */
async function claimScheduled(dueMs: number, deps: JobDeps): Promise<string | undefined> {
  const scheduleKey = nightlyScheduleKey(dueMs);
  const going = await deps.runs.list({ kind: 'nightly', states: ['queued', 'running'], limit: 10 });
  const other = going.find((run) => run.scheduleKey !== scheduleKey);
  if (other !== undefined) {
    deps.log.warn({ scheduleKey, runId: other.runId }, 'Nightly run skipped: the last one is still going');
    return undefined;
  }
  const run = await deps.runs.create({ kind: 'nightly', subject: 'scheduled', scheduleKey });
  return run.runId;
}
