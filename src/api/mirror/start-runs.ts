/** Runs as the read API starts them: once for each key, and never the same work twice side by side. */
import { z } from 'zod';
import { enqueueRun } from '../../runs/enqueue.ts';
import type { JobDeps } from '../../runs/job.ts';
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import type { NewRun } from '../../runs/store/run.ts';
import { StatusError } from '../http/status-error.ts';

/** What `POST /mirror/runs` asks for. */
export const RUN_ORDER = z.strictObject({
  kind: z.enum(['nightly', 'sync', 'audit', 'load', 'verify']),
  list: z.enum(['parties', 'checkpoints', 'all']).default('all').describe('Of sync and audit.'),
  rebuild: z.boolean().default(false).describe('Of load: the manifest tables first.'),
  deep: z.boolean().default(false).describe('Of verify: every row.'),
  onConflict: z
    .enum(['attach', 'fail'])
    .default('attach')
    .describe('Where the same work is open: take its run, or answer 409.'),
});

export type RunOrder = z.infer<typeof RUN_ORDER>;

/** The same name is the same run; `hash` is of what was asked for. */
export interface OrderKey {
  readonly name: string;
  readonly hash: string;
}

interface Started {
  readonly runId: string;
  readonly isNew: boolean;
}

const LISTS = {
  parties: ['parties'],
  checkpoints: ['checkpoints'],
  all: ['parties', 'checkpoints'],
} as const;

export class RunStarts {
  readonly #jobs: JobDeps;
  readonly #isAttended: (sourceUrl: string | undefined) => Promise<boolean>;

  /** @param isAttended whether a process that works jobs is there, of this source where it is named */
  constructor(jobs: JobDeps, isAttended: (sourceUrl: string | undefined) => Promise<boolean>) {
    this.#jobs = jobs;
    this.#isAttended = isAttended;
  }

  /** @throws StatusError 409, 422 or 503 */
  async start(order: RunOrder, key: OrderKey | undefined): Promise<Started> {
    const asksSource = order.kind === 'nightly' || order.kind === 'sync' || order.kind === 'audit';
    const url = this.#jobs.source?.url;
    if (asksSource && url === undefined) {
      throw StatusError.ofGateway(
        'unavailable',
        'this process has no SOURCE_URL, so it cannot order what asks the source',
      );
    }
    if (!(await this.#isAttended(asksSource ? url : undefined))) {
      throw StatusError.ofGateway(
        'unavailable',
        'no worker is running that could take it; start one and try again',
      );
    }
    const started = [];
    for (const [index, wanted] of runsOf(order).entries()) {
      // Two lists are two runs: each has a key of its own.
      const own = key === undefined || index === 0 ? key : { ...key, name: `${key.name} ${index}` };
      started.push(await startOne(wanted, order, own, this.#jobs));
    }
    const [first] = started;
    if (first === undefined) throw new Error(`an order of ${order.kind} names no run`);
    return { runId: first.runId, isNew: started.some(({ isNew }) => isNew) };
  }

  /** Has no effect on a run that has ended. */
  async cancel(runId: string): Promise<void> {
    await this.#jobs.runs.requestCancel(runId);
  }

  /** Live counts, for people. */
  progress(runId: string): Promise<readonly ProgressLine[]> {
    return this.#jobs.progress.read(runId);
  }
}

async function startOne(
  wanted: NewRun,
  order: RunOrder,
  key: OrderKey | undefined,
  jobs: JobDeps,
): Promise<Started> {
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
  if (found === 'none' || run.jobId === null) await enqueueRun(run, jobs);
  return { runId: run.runId, isNew: found === 'none' };
}

function runsOf({ kind, list, rebuild, deep }: RunOrder): readonly NewRun[] {
  if (kind === 'nightly') return [{ kind, subject: 'ordered' }];
  if (kind === 'load') return [{ kind, subject: 'warehouse and lake', params: { rebuild } }];
  if (kind === 'verify') return [{ kind, subject: deep ? 'deep' : 'sums', params: { isOrdered: true } }];
  const params = { full: kind === 'audit', acceptNewNetwork: false };
  return LISTS[list].map((subject) => ({ kind: 'sync' as const, subject, params }));
}
