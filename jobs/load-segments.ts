/** The job that loads published segments into the warehouse and the lake. */
import { z } from 'zod';
import { JOBS, type JobDefinition } from '../src/runs/job.ts';
import { workRun } from '../src/runs/work-run.ts';

const payload = z.strictObject({ runId: z.uuid() });
const params = z.object({ rebuild: z.boolean().default(false) });

export const loadSegmentsJob: JobDefinition<z.infer<typeof payload>> = {
  ...JOBS.load,
  payload,
  handle: ({ runId }, deps, context) =>
    workRun(runId, deps, context, (run, call) =>
      deps.stages.load({ runId, ...params.parse(run.params) }, call),
    ),
};
