/**
 * The job of a sync: brings one list of the source up to date, or audits it.
 * AUDIT_SCHEDULE sets when each list is audited.
 */
import { z } from 'zod';
import { JOBS, type JobDefinition } from '../src/runs/job.ts';
import { claimScheduled, SCHEDULED } from '../src/runs/nightly/schedules.ts';
import { whileSourceAway } from '../src/runs/nightly/source-wait.ts';
import { workRun } from '../src/runs/work-run.ts';

const subject = z.enum(['parties', 'checkpoints']);
const payload = z.union([
  z.strictObject({ runId: z.uuid() }),
  z.strictObject({ audit: subject, source: z.string().max(64).optional() }),
]);
const flag = z.boolean().default(false);
const params = z.object({
  full: flag,
  wholeUpToRows: z.int().nonnegative().optional(),
  acceptNewNetwork: flag,
  acceptShrunk: flag,
});

export const syncListJob: JobDefinition<z.infer<typeof payload>> = {
  ...JOBS.sync,
  payload,
  handle: async (given, deps, context) => {
    const runId =
      'runId' in given
        ? given.runId
        : await claimScheduled(
            SCHEDULED[given.audit],
            given.source,
            deps,
            context,
          );
    if (runId === undefined) return;
    await workRun(runId, deps, context, (run, call) => {
      const list = subject.parse(run.subject);
      const request = { runId, list, ...params.parse(run.params) };
      const sync = () => deps.stages.sync(request, call);
      // A sync inside a nightly run waits for the source as long as the nightly run
      // may.
      return run.parentRunId === null
        ? sync()
        : whileSourceAway(run.parentRunId, deps, call, list, sync);
    });
  },
};
