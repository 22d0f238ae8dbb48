/** Runs as the read API starts them: once for each key, and never the same work twice side by side. */
import { enqueueRun } from '../../runs/enqueue.ts';
import type { JobDeps } from '../../runs/job.ts';
import type { NewRun } from '../../runs/store/run.ts';
import type { RunOrder, RunOrders } from '../http/ports.ts';
import { StatusError } from '../http/status-error.ts';

export interface StartDeps {
  readonly jobs: JobDeps;
  /** Whether a process that works jobs is there, of this source where it is named. */
  readonly isAttended: (sourceUrl: string | undefined) => Promise<boolean>;
}

const LISTS = {
  parties: ['parties'],
  checkpoints: ['checkpoints'],
  all: ['parties', 'checkpoints'],
} as const;

export function openRunOrders({ jobs, isAttended }: StartDeps): RunOrders {
  return {
    start: async (order, key) => {
      const asksSource = order.kind === 'nightly' || order.kind === 'sync' || order.kind === 'audit';
      const url = jobs.source?.url;
      if (asksSource && url === undefined) {
        throw StatusError.ofGateway(
          'unavailable',
          'this process has no SOURCE_URL, so it cannot order what asks the source',
        );
      }
      if (!(await isAttended(asksSource ? url : undefined))) {
        throw StatusError.ofGateway(
          'unavailable',
          'no worker is running that could take it; start one and try again',
        );
      }
      const started = [];
      for (const [index, wanted] of runsOf(order).entries()) {
        // Two lists are two runs: each has a key of its own.
        const own = key === undefined || index === 0 ? key : { ...key, name: `${key.name} ${index}` };
        started.push(await startOne(wanted, order, own, jobs));
      }
      const [first] = started;
      if (first === undefined) throw new Error(`an order of ${order.kind} names no run`);
      return { runId: first.runId, isNew: started.some(({ isNew }) => isNew) };
    },
    cancel: async (runId) => {
      await jobs.runs.requestCancel(runId);
    },
    progress: (runId) => jobs.progress.read(runId),
  };
}

async function startOne(
  wanted: NewRun,
  order: RunOrder,
  key: { name: string; hash: string } | undefined,
  jobs: JobDeps,
): Promise<{ runId: string; isNew: boolean }> {
  const { run, found } = await jobs.runs.order(wanted, {
    key,
    isExclusive: order.onConflict === 'fail',
  });
  if (found === 'other') {
    throw StatusError.ofGateway(
      'failedPrecondition',
      'Idempotency-Key: it was used for another order; give a new one',
    );
  }
  if (found === 'open' && order.onConflict === 'fail') {
    throw StatusError.ofGateway('alreadyExists', `run ${run.runId} does the same already`);
  }
  // Also where its first request was cut off before the job was queued.
  if (found === 'none' || run.jobId === undefined) await enqueueRun(run, jobs);
  return { runId: run.runId, isNew: found === 'none' };
}

function runsOf({ kind, list, rebuild, deep }: RunOrder): readonly NewRun[] {
  if (kind === 'nightly') return [{ kind, subject: 'ordered' }];
  if (kind === 'load') return [{ kind, subject: 'warehouse and lake', params: { rebuild } }];
  if (kind === 'verify') return [{ kind, subject: deep ? 'deep' : 'sums', params: { isOrdered: true } }];
  const params = { full: kind === 'audit', acceptNewNetwork: false };
  return LISTS[list].map((subject) => ({ kind: 'sync' as const, subject, params }));
}
