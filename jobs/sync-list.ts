/**
 * The job for a sync, which updates or audits one of the source's lists. AUDIT_SCHEDULE
 * sets when each list is audited.
 */
import { z } from 'zod';
import { JOBS, type JobDefinition } from '../src/runs/job.ts';
import { openListShare } from '../src/runs/nightly/list-share.ts';
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
    await workRun(runId, deps, context, async (run, call) => {
      const list = subject.parse(run.subject);
      const request = { runId, list, ...params.parse(run.params) };
      const { parentRunId } = run;
      const night = parentRunId && (await deps.runs.get(parentRunId));
      if (!night) return deps.stages.sync(request, call);

      // A sync within a nightly run gives up on an unreachable source when the run itself
      // would, and stops reading once its share of the run's window is used up.
      const share = await openListShare(night, list, deps);
      return whileSourceAway(night.runId, deps, call, list, () =>
        share.spend(call, (limited) => deps.stages.sync(request, limited)),
      );
    });
  },
};
