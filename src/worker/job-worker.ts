/** The jobs that this process works, and the signs of life by which others know that it does. */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { reconcileRuns } from '../runs/enqueue.ts';
import type { JobDeps } from '../runs/job.ts';
import { sendNotices } from '../runs/notices.ts';
import { forgetHistory } from '../runs/store/history.ts';
import type { WorkedJob } from '../queue/queue-worker.ts';
import { PermanentError } from '../errors/errors.ts';
import { exportPartyJob } from '../../jobs/export-party.ts';
import { loadSegmentsJob } from '../../jobs/load-segments.ts';
import { nightlyJob } from '../../jobs/nightly.ts';
import { syncListJob } from '../../jobs/sync-list.ts';
import { verifyJob } from '../../jobs/verify.ts';
import {
  keepSchedules,
  makeUpMissed,
  SCHEDULED,
  type Schedules,
} from '../runs/nightly/start-scheduled.ts';
import { QUEUE_NAMES, type QueueName } from '../queue/backend.ts';
import type { Queues } from '../queue/queues.ts';
import {
  WORKER_SILENT_MS,
  type WorkerRegistry,
} from '../observability/store/worker-registry.ts';

/** How long jobs may take to checkpoint when the process is told to stop. */
export const SHUTDOWN_GRACE_MS = 8_000;
const BEAT_MS = WORKER_SILENT_MS / 3;
const RECONCILE_MS = 60_000;
const SCHEDULE_CHECK_MS = 30_000;
const FORGET_MS = 3_600_000;
const CANARY_MS = 10_000;
/** Every worker sends canaries and any of them may take one: a long silence is not bad luck. */
const QUIET_MAX_MS = 120_000;
/** Both lists at once, one nightly run at a time. Exports wait for their leases anyway. */
const CONCURRENCY: Readonly<Record<QueueName, number>> = {
  sync: 2,
  export: 1,
  load: 1,
  nightly: 1,
};

const JOBS = [
  syncListJob,
  exportPartyJob,
  loadSegmentsJob,
  nightlyJob,
  verifyJob,
] as const;

/** @throws PermanentError `JOB_UNKNOWN` or `JOB_PAYLOAD` where another version put it into the queue */
export async function handleJob(
  job: WorkedJob,
  deps: JobDeps,
  signal: AbortSignal,
): Promise<void> {
  const definition = JOBS.find(({ name }) => name === job.name);
  if (definition === undefined) {
    const message = `Cannot work job ${job.id}: this version knows no job named ${job.name}`;
    throw new PermanentError(message, { code: 'JOB_UNKNOWN' });
  }
  const parsed = definition.payload.safeParse(job.data);
  if (!parsed.success) {
    const message = `Cannot work job ${job.id}: its payload is not that of ${job.name}`;
    throw new PermanentError(message, { code: 'JOB_PAYLOAD', cause: parsed.error });
  }
  // The payload was parsed by this very definition.
  await definition.handle(parsed.data as never, deps, { ...job, signal });
}

interface JobWorkerOptions {
  readonly queues: Queues;
  readonly workers: WorkerRegistry;
  readonly jobs: JobDeps;
  readonly schedules: Schedules;
  /** In milliseconds: finished runs that are older are dropped. */
  readonly historyRetention: number;
}

export class JobWorker implements AsyncDisposable {
  readonly #options: JobWorkerOptions;
  readonly #workerId = randomUUID();
  readonly #timers: NodeJS.Timeout[] = [];
  #isWorking = false;
  #isRegistered = false;

  constructor(options: JobWorkerOptions) {
    this.#options = options;
  }

  /** Takes jobs, as a command does for its own. Calling it again does nothing. */
  start(names: readonly QueueName[] = QUEUE_NAMES): void {
    if (this.#isWorking) return;
    this.#isWorking = true;
    const { queues, jobs } = this.#options;
    for (const queue of names) {
      // One more than ask at once: while a large ledger is divided or published, a small one is asked for.
      const concurrency =
        queue === 'export' ? jobs.sourceExportConcurrency + 1 : CONCURRENCY[queue];
      queues.work(queue, concurrency, (job, signal) => handleJob(job, jobs, signal));
    }
  }

  /** The same for a long-lived process: commands leave their jobs to it, and it takes up what others dropped. */
  async startAndRegister(): Promise<void> {
    const { queues, jobs, schedules, historyRetention } = this.#options;
    this.start();
    await this.#beat();
    this.#isRegistered = true;
    await reconcileRuns(jobs);
    const makeUp = async () => {
      for (const one of Object.values(SCHEDULED))
        await makeUpMissed(one, schedules, jobs);
    };
    this.#every(BEAT_MS, 'Worker could not be renewed', () => this.#beat());
    this.#every(CANARY_MS, 'Canaries could not be sent', () =>
      queues.sendCanaries(this.#workerId),
    );
    await keepSchedules(this.#options);
    this.#every(SCHEDULE_CHECK_MS, 'The schedules could not be put back', () =>
      keepSchedules(this.#options),
    );
    this.#every(SCHEDULE_CHECK_MS, 'The schedule could not be checked', makeUp);
    this.#every(RECONCILE_MS, 'Notices could not be sent', () => sendNotices(jobs));
    this.#every(FORGET_MS, 'Old runs could not be forgotten', async () => {
      const forgotten = await forgetHistory(jobs.db, historyRetention);
      if (forgotten.runs + forgotten.nightlyLists > 0)
        jobs.log.info({ ...forgotten }, 'Old runs forgotten');
    });
    this.#every(RECONCILE_MS, 'Runs could not be reconciled', () => reconcileRuns(jobs));
  }

  /** Whether jobs are taken here: on each queue one is being worked, or was lately. */
  health(): {
    readonly isHealthy: boolean;
    readonly queues: ReturnType<Queues['pulses']>;
  } {
    const queues = this.#options.queues.pulses();
    const isHealthy =
      queues.length > 0 &&
      queues.every((pulse) => pulse.activeJobs > 0 || pulse.quietMs < QUIET_MAX_MS);
    return { isHealthy, queues };
  }

  /** First of all that is closed: handlers checkpoint with their source and stores still there. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await this.#options.queues.stopWorking(SHUTDOWN_GRACE_MS);
    if (this.#isRegistered) await this.#options.workers.leave(this.#workerId);
  }

  #beat() {
    const { workers, schedules, jobs } = this.#options;
    const about = { name: `${hostname()} ${process.pid}`, queues: QUEUE_NAMES };
    return workers.beat(this.#workerId, {
      ...about,
      sourceUrl: jobs.source?.url,
      schedules,
    });
  }

  #every(intervalMs: number, complaint: string, work: () => Promise<void>): void {
    const tell = (error: unknown) =>
      this.#options.jobs.log.warn({ err: error }, complaint);
    this.#timers.push(setInterval(() => void work().catch(tell), intervalMs));
  }
}
