/** The job for a nightly run, started by the schedule or by a user. */
import { z } from 'zod';
import { JOBS, type JobDefinition } from '../src/runs/job.ts';
import { runNightly } from '../src/runs/nightly/nightly-run.ts';
import {
  claimScheduled,
  reportOverrun,
  SCHEDULED,
} from '../src/runs/nightly/schedules.ts';
import { sendNotices } from '../src/runs/notices.ts';
import { workRun } from '../src/runs/work-run.ts';
import { describeRun } from '../src/runs/run-document.ts';

const payload = z.union([
  z.strictObject({ runId: z.uuid() }),
  z.strictObject({
    scheduled: z.literal(true),
    source: z.string().max(64).optional(),
  }),
]);

export const nightlyJob: JobDefinition<z.infer<typeof payload>> = {
  ...JOBS.nightly,
  payload,
  handle: async (given, deps, context) => {
    const runId =
      'runId' in given
        ? given.runId
        : await claimScheduled(SCHEDULED.nightly, given.source, deps, context);
    if (runId === undefined) return;
    const { publishReport } = deps.stages;
    await workRun(
      runId,
      deps,
      context,
      (run, call) => runNightly(run, deps, call),
      publishReport,
    );
    const ended = await deps.runs.get(runId);
    if (ended?.state === 'done') {
      deps.log.info({ report: describeRun(ended) }, 'Nightly report');
      await reportOverrun(ended, deps);
    }
    await sendNotices(deps);
  },
};
