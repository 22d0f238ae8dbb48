/** Runs as the read API starts them: once for each key, and never the same work twice side by side. */
import { z } from 'zod';
import { enqueueRun } from '../../runs/enqueue.ts';
import type { JobDeps } from '../../runs/job.ts';
import { isOver } from '../../runs/run-document.ts';
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import type { NewRun } from '../../runs/store/run.ts';
import { StatusError } from '../http/status-error.ts';

/** How a run is followed to its end. */
export const FOLLOWING = { everyMs: 250, isLast: isOver };

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

export type RunOrders = Pick<RunStarts, keyof RunStarts>;

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
    if (asksSource && url === undefined)
      throw unavailable('this process has no SOURCE_URL, so it cannot order what asks the source');
    if (!(await this.#isAttended(asksSource ? url : undefined)))
      throw unavailable('no worker is running that could take it; start one and try again');
    const [first, second] = runsOf(order);
    const started = await this.#startOne(first, order, key);
    if (second === undefined) return started;
    // Two lists are two runs: each has a key of its own.
    const { isNew } = await this.#startOne(second, order, key && { ...key, name: `${key.name} 1` });
    return { ...started, isNew: started.isNew || isNew };
  }

  /** Has no effect on a run that has ended. */
  async cancel(runId: string): Promise<void> {
    await this.#jobs.runs.requestCancel(runId);
  }

  /** Live counts, for people. */
  progress(runId: string): Promise<readonly ProgressLine[]> {
    return this.#jobs.progress.read(runId);
  }

  async #startOne(wanted: NewRun, { onConflict }: RunOrder, key: OrderKey | undefined): Promise<Started> {
    const isExclusive = onConflict === 'fail';
    const { run, found } = await this.#jobs.runs.order(wanted, { key, isExclusive });
    const { runId } = run;
    if (found === 'other') {
      const state = 'it was used for another order; give a new one';
      throw new StatusError('failedPrecondition', `Idempotency-Key: ${state}`);
    }
    if (found === 'open' && isExclusive)
      throw new StatusError('alreadyExists', `run ${runId} does the same already`);
    // Also where its first request was cut off before the job was queued.
    if (found === 'none' || run.jobId === null) await enqueueRun(run, this.#jobs);
    return { runId, isNew: found === 'none' };
  }
}

function unavailable(message: string): StatusError {
  return new StatusError('unavailable', message);
}

function runsOf({ kind, list, rebuild, deep }: RunOrder): readonly [NewRun, NewRun?] {
  if (kind === 'nightly') return [{ kind, subject: 'ordered' }];
  if (kind === 'load') return [{ kind, subject: 'warehouse and lake', params: { rebuild } }];
  if (kind === 'verify') return [{ kind, subject: deep ? 'deep' : 'sums', params: { isOrdered: true } }];
  const sync = { kind: 'sync', params: { full: kind === 'audit', acceptNewNetwork: false } } as const;
  if (list !== 'all') return [{ ...sync, subject: list }];
  return [
    { ...sync, subject: 'parties' },
    { ...sync, subject: 'checkpoints' },
  ];
}
