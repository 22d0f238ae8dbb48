/**
 * The job for an export of one party's ledger entries, either on demand as a run of its
 * own or as part of the nightly run.
 */
import { z } from 'zod';
import { partyId } from '../src/ledger/json-fields.ts';
import { exportOnDemand } from '../src/runs/export-on-demand.ts';
import { exportLedgers } from '../src/runs/nightly/export-ledgers.ts';
import { JOBS, type JobDefinition } from '../src/runs/job.ts';
import { workRun } from '../src/runs/work-run.ts';

const payload = z.strictObject({
  runId: z.uuid(),
  // Queues may still contain jobs from earlier versions, which list up to 100 parties.
  partyIds: z.array(partyId).min(1).max(100).optional(),
});

export const exportPartyJob: JobDefinition<z.infer<typeof payload>> = {
  ...JOBS.export,
  payload,
  handle: ({ runId, partyIds }, deps, context) =>
    partyIds === undefined
      ? workRun(runId, deps, context, (run, { signal }) =>
          exportOnDemand(run, deps, signal),
        )
      : exportLedgers({ runId, partyIds }, deps, context),
};
