/** The job for a verification requested by a user. */
import { z } from 'zod';
import { JOBS, type JobDefinition } from '../src/runs/job.ts';
import { workRun } from '../src/runs/work-run.ts';

const payload = z.strictObject({ runId: z.uuid() });

export const verifyJob: JobDefinition<z.infer<typeof payload>> = {
  ...JOBS.verify,
  payload,
  handle: ({ runId }, deps, context) =>
    workRun(runId, deps, context, (run, call) =>
      deps.stages.verify(
        { runId, deep: run.subject === 'deep', scope: 'whole' },
        call,
      ),
    ),
};
