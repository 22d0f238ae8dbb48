/** Runs this process's jobs, and sends the heartbeats that other processes check. */
import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { hostname } from 'node:os';
import { exportPartyJob } from '../../jobs/export-party.ts';
import { loadSegmentsJob } from '../../jobs/load-segments.ts';
import { nightlyJob } from '../../jobs/nightly.ts';
import { syncListJob } from '../../jobs/sync-list.ts';
import { verifyJob } from '../../jobs/verify.ts';
import { WORKER_SILENT_MS } from '../concurrency/lease.ts';
import { PermanentError } from '../errors/errors.ts';
import type { WorkerRegistry } from '../observability/store/worker-registry.ts';
import { QUEUE_NAMES, type QueueName } from '../queue/backend.ts';
import type { WorkedJob } from '../queue/queue-worker.ts';
import type { Queues } from '../queue/queues.ts';
import { reconcileRuns } from '../runs/enqueue.ts';
import type { JobDeps } from '../runs/job.ts';
import { makeUpMissed } from '../runs/nightly/missed-times.ts';
import { LATE_MS } from '../runs/nightly/scheduled-time.ts';
import type { Schedules } from '../time/scheduled-times.ts';
import { keepSchedules, SCHEDULED } from '../runs/nightly/schedules.ts';
import { sendNotices } from '../runs/notices.ts';
import { forgetHistory } from '../runs/store/history.ts';
import { readNowMs } from '../runs/store/schedule-store.ts';

/** How long jobs may take to reach a safe point once the process is told to stop. */
export const SHUTDOWN_GRACE_MS = 8_000;
const BEAT_MS = WORKER_SILENT_MS / 3;
const RECONCILE_MS = 60_000;
const SCHEDULE_CHECK_MS = 30_000;
const FORGET_MS = 3_600_000;
const CANARY_MS = 10_000;
/**
 * How long a queue may go without a job or a canary before the worker is considered
 * unhealthy. Every worker sends canaries and any worker may take one, so such a long
 * silence is no coincidence.
 */
const QUIET_MAX_MS = 120_000;
/**
 * How far this clock may differ from the database's without being reported; a slow
 * response can explain a smaller difference.
 */
const CLOCK_DIFFERENCE_MAX_MS = 60_000;

/**
 * How many jobs of each queue a worker runs concurrently: both lists at the same time,
 * but only one nightly run.
 */
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

/**
 * Passes a job to the handler of its kind.
 * @throws PermanentError `JOB_UNKNOWN` or `JOB_PAYLOAD` if a different version queued
 *   the job
 */
export async function handleJob(
  job: WorkedJob,
  deps: JobDeps,
  signal: AbortSignal,
): Promise<void> {
  const definition = JOBS.find(({ name }) => name === job.name);
  if (definition === undefined) {
    const message = `Cannot do job ${job.id}: this version does not know a job named ${job.name}`;
    throw new PermanentError(message, { code: 'JOB_UNKNOWN' });
  }

  const parsed = definition.payload.safeParse(job.data);
  if (!parsed.success) {
    const message = `Cannot do job ${job.id}: its payload is not one of ${job.name}`;
    throw new PermanentError(message, {
      code: 'JOB_PAYLOAD',
      cause: parsed.error,
    });
  }

  // This definition's own schema parsed the payload, so the types match.
  await definition.handle(parsed.data as never, deps, { ...job, signal });
}

interface JobWorkerOptions {
  readonly queues: Queues;
  readonly workers: WorkerRegistry;
  readonly jobs: JobDeps;
  /** The schedules that this process was configured with. */
  readonly schedules: Schedules;
  /** How long finished runs are kept before they are deleted, in milliseconds. */
  readonly historyRetention: number;
}

interface WorkerPulse {
  readonly isHealthy: boolean;
  readonly queues: ReturnType<Queues['pulses']>;
}

export class JobWorker implements AsyncDisposable {
  readonly #options: JobWorkerOptions;
  readonly #workerId = randomUUID();
  readonly #timers: NodeJS.Timeout[] = [];
  /** Emits the id of a run when this process has ended a job of it. */
  readonly #jobEnds = new EventEmitter();
  #isWorking = false;
  #isRegistered = false;
  /**
   * The last reported clock difference, kept so that it is not logged again every 30
   * seconds.
   */
  #reportedClockMs = 0;
  /**
   * The schedules in force that this worker last reported as different from its own, as
   * JSON.
   */
  #reportedSchedules: string | undefined;

  constructor(options: JobWorkerOptions) {
    this.#options = options;
  }

  /**
   * Starts taking jobs; a command calls only this, for its own jobs. Calling it again
   * does nothing.
   */
  start(names: readonly QueueName[] = QUEUE_NAMES): void {
    if (this.#isWorking) return;

    this.#isWorking = true;
    const { queues, jobs } = this.#options;
    for (const queue of names) {
      // One more than the number of exports that may use the source at the same time, so
      // that a small ledger can be requested while a large one is being split or
      // published.
      const concurrency =
        queue === 'export'
          ? jobs.sourceExportConcurrency + 1
          : CONCURRENCY[queue];
      queues.work(queue, concurrency, async (job, signal) => {
        try {
          await handleJob(job, jobs, signal);
        } finally {
          this.#jobEnds.emit(String(job.data['runId']));
        }
      });
    }
  }

  /**
   * Resolves when this process has ended a job of the run, whatever its outcome.
   * @throws AbortError if the signal is aborted
   */
  async endOfJob(runId: string, signal: AbortSignal): Promise<void> {
    await once(this.#jobEnds, runId, { signal });
  }

  /**
   * Takes jobs as a long-running worker, to which commands then leave their jobs. It also
   * resumes runs that other workers dropped, and maintains the schedules.
   */
  async startAndRegister(): Promise<void> {
    const { queues, jobs, historyRetention } = this.#options;
    this.start();
    await this.#beat();
    this.#isRegistered = true;
    await reconcileRuns(jobs);
    await this.#keepSchedules();

    this.#every(
      BEAT_MS,
      'The registration of this worker could not be renewed',
      () => this.#beat(),
    );
    this.#every(CANARY_MS, 'Canaries could not be sent', () =>
      queues.sendCanaries(this.#workerId),
    );
    this.#every(SCHEDULE_CHECK_MS, 'The schedules could not be restored', () =>
      this.#keepSchedules(),
    );
    this.#every(SCHEDULE_CHECK_MS, 'The schedule could not be checked', () =>
      this.#makeUpMissed(),
    );
    let isTelling = false;
    this.#every(RECONCILE_MS, 'Notices could not be sent', async () => {
      // A receiver that hangs takes longer than this interval, so nothing more is sent
      // until the last attempt has ended.
      if (isTelling) return;
      isTelling = true;
      try {
        await sendNotices(jobs);
      } finally {
        isTelling = false;
      }
    });
    this.#every(FORGET_MS, 'Old runs could not be removed', async () => {
      const forgotten = await forgetHistory(jobs.db, historyRetention);
      if (forgotten.runs + forgotten.nightlyLists > 0)
        jobs.log.info({ ...forgotten }, 'Old runs forgotten');
    });
    this.#every(RECONCILE_MS, 'Runs could not be reconciled', () =>
      reconcileRuns(jobs),
    );
  }

  /**
   * Returns the worker's health. It is healthy if every queue has a job in progress or
   * recently took a job or a canary.
   */
  health(): WorkerPulse {
    const queues = this.#options.queues.pulses();
    const isHealthy =
      queues.length > 0 &&
      queues.every(
        (pulse) => pulse.activeJobs > 0 || pulse.quietMs < QUIET_MAX_MS,
      );

    return { isHealthy, queues };
  }

  /**
   * Stops taking jobs and waits for those in progress. It must run before anything else
   * is closed, because handlers need the source and the stores to reach a safe point.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await this.#options.queues.stopWorking(SHUTDOWN_GRACE_MS);
    if (this.#isRegistered) await this.#options.workers.leave(this.#workerId);
  }

  async #beat(): Promise<void> {
    const { workers, schedules, jobs } = this.#options;

    await workers.beat(this.#workerId, {
      name: `${hostname()} ${process.pid}`,
      queues: QUEUE_NAMES,
      sourceUrl: jobs.source?.url,
      schedules,
    });
  }

  async #keepSchedules(): Promise<void> {
    const { queues, jobs } = this.#options;
    const schedules = await this.#schedulesInForce();
    await keepSchedules({ queues, jobs, schedules });
    this.#reportOtherSchedules(schedules);
  }

  async #makeUpMissed(): Promise<void> {
    const { jobs } = this.#options;
    const schedules = await this.#schedulesInForce();
    const nowMs = await readNowMs(jobs.db);
    const aheadMs = Date.now() - nowMs;
    this.#reportClock(aheadMs);
    // The queue uses this process's clock. If that clock is behind the database's, jobs
    // start that much later.
    const lateMs = LATE_MS + Math.max(0, -aheadMs);

    for (const scheduled of Object.values(SCHEDULED))
      await makeUpMissed(scheduled, schedules, jobs, nowMs, lateMs);
  }

  /**
   * Returns the schedules of the worker that started last, which all workers follow. If
   * each worker followed its own, they would overwrite each other's schedules in the
   * queue, and each would make up for nightly runs that the others had not started.
   */
  async #schedulesInForce(): Promise<Schedules> {
    const { workers, schedules } = this.#options;
    const { inForce } = await workers.facts();
    return inForce ?? schedules;
  }

  #reportOtherSchedules(inForce: Schedules): void {
    const { jobs, schedules } = this.#options;
    const text = JSON.stringify(inForce);
    if (sameSchedules(inForce, schedules) || text === this.#reportedSchedules)
      return;

    this.#reportedSchedules = text;
    jobs.log.warn(
      { inForce, own: schedules },
      'A worker that started later has different schedules: those stay ' +
        'in force, not the ones of this worker',
    );
  }

  #reportClock(aheadMs: number): void {
    const change = Math.abs(aheadMs - this.#reportedClockMs);
    if (change < CLOCK_DIFFERENCE_MAX_MS) return;

    this.#reportedClockMs = aheadMs;
    this.#options.jobs.log.warn(
      { aheadSeconds: Math.round(aheadMs / 1_000) },
      "The clock of this process and the database's differ: schedules go by the " +
        "database's",
    );
  }

  #every(
    intervalMs: number,
    complaint: string,
    work: () => Promise<void>,
  ): void {
    const { log } = this.#options.jobs;
    const run = (): void => {
      work().catch((error: unknown) => log.warn({ err: error }, complaint));
    };

    this.#timers.push(setInterval(run, intervalMs));
  }
}

function sameSchedules(one: Schedules, other: Schedules): boolean {
  return (
    one.nightly.pattern === other.nightly.pattern &&
    one.nightly.tz === other.nightly.tz &&
    one.audit.pattern === other.audit.pattern &&
    one.audit.tz === other.audit.tz
  );
}
