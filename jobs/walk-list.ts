/** Walks one list of the source, or audits it. */
import { z } from 'zod';
import type { JobDefinition } from './job.ts';
import { workRun } from './work-run.ts';

const payload = z.strictObject({ runId: z.uuid() });
const subject = z.enum(['parties', 'checkpoints']);
const params = z.object({ full: z.boolean().default(false), acceptNewNetwork: z.boolean().default(false) });

export const walkListJob: JobDefinition<z.infer<typeof payload>> = {
  name: 'walk-list',
  queue: 'walk',
  payload,
  handle: ({ runId }, deps, context) =>
    workRun(runId, deps, context, (run, signal) =>
      deps.stages.walk(
        { runId, list: subject.parse(run.subject), ...params.parse(run.params) },
        { signal, onProgress: (lines) => deps.progress.report(runId, lines) },
      ),
    ),
};
