/** Syncs one list of the source, or audits it; AUDIT_SCHEDULE says when each list is audited. */
import { z } from 'zod';
import { JOBS, type JobDefinition, type JobDeps } from '../src/runs/job.ts';
import { auditScheduleKey } from '../src/runs/nightly/schedule.ts';
import { refuseOtherSchedule, workRun } from '../src/runs/work-run.ts';

const subject = z.enum(['parties', 'checkpoints']);
const payload = z.union([
  z.strictObject({ runId: z.uuid() }),
  z.strictObject({ audit: subject, source: z.string().max(64).optional() }),
]);
const flag = z.boolean().default(false);
const params = z.object({ full: flag, acceptNewNetwork: flag, acceptShrunk: flag });

export const syncListJob: JobDefinition<z.infer<typeof payload>> = {
  ...JOBS.sync,
  payload,
  handle: async (given, deps, context) => {
    if (!('runId' in given)) refuseOtherSchedule('the scheduled audit', given.source, deps);
    const runId = 'runId' in given ? given.runId : await claimAudit(given.audit, context.dueMs, deps);
    await workRun(runId, deps, context, (run, call) =>
      deps.stages.sync({ runId, list: subject.parse(run.subject), ...params.parse(run.params) }, call),
    );
  },
};

/** One run for each scheduled time, however often the schedule's job is delivered. */
async function claimAudit(list: z.infer<typeof subject>, dueMs: number, deps: JobDeps): Promise<string> {
  const scheduleKey = auditScheduleKey(list, dueMs);
  const run = await deps.runs.create({ kind: 'sync', subject: list, scheduleKey, params: { full: true } });
  return run.runId;
}
