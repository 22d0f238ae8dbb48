/**
 * The worker of one queue in this process. It reports whether it takes jobs, and is
 * replaced if it has stopped doing so.
 *
 * A connection can die so that neither end notices. The worker then waits for jobs for
 * ever, while the store holds some. Canaries reveal that: they are jobs that do nothing,
 * and that somebody must take.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnrecoverableError } from 'bullmq';
import {
  FencedError,
  PermanentError,
  RetryableError,
} from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import {
  type BullJob,
  type BullWorker,
  type JobData,
  type QueueBackend,
  repeatStrategy,
} from './backend.ts';

/** The name of a job that does nothing. A worker that takes it takes other jobs too. */
export const CANARY = 'canary';
/** How long a worker may take to close; one that is cut off from its store never does. */
const CLOSE_TIMEOUT_MS = 5_000;
/**
 * A job whose lock is not renewed for this long goes to another worker. BullMQ renews at
 * half of it.
 */
const LOCK_MS = 10_000;
const STALLED_CHECK_MS = 4_000;
/**
 * Practically no limit: attempts are counted in Postgres, since the queue's store may
 * lose its count.
 */
export const ATTEMPTS_MAX = 1_000_000;
const BACKOFF_MIN_MS = 1_000;
const BACKOFF_MAX_MS = 60_000;
/**
 * With a healthy worker, several rounds of canaries go unclaimed by chance about once in
 * a hundred times. A needless replacement costs one connection.
 */
const SILENT_MAX_MS = 45_000;

/** A job as its handler receives it. */
export interface WorkedJob {
  readonly id: string;
  readonly name: string;
  readonly data: JobData;
  /**
   * When the job was due, or added if it was not scheduled, in milliseconds since 1970.
   */
  readonly dueMs: number;
  /** 1 for the first delivery. */
  readonly attempt: number;
}

/** How one delivery of a job ended. */
export interface JobReport {
  readonly queue: string;
  readonly outcome: 'done' | 'failed';
  readonly durationMs: number;
}

export interface QueueWorkerOptions {
  readonly backend: QueueBackend;
  readonly log: Log;
  readonly queue: string;
  /** The name of the queue in its store. */
  readonly name: string;
  readonly concurrency: number;
  readonly process: (job: WorkedJob, signal: AbortSignal) => Promise<void>;
  /** Aborted when this process stops working jobs. */
  readonly stop: AbortSignal;
  readonly onError: (error: Error) => void;
  /** Called after every job that was worked here, for metrics. */
  readonly onJob?: (report: JobReport) => void;
  /**
   * How long canaries may lie in the queue, without one being taken, before the worker is
   * replaced.
   */
  readonly silentMaxMs?: number;
}

export class QueueWorker {
  readonly #options: QueueWorkerOptions;
  #worker: BullWorker;
  #activeJobs = 0;
  /** When a job was last taken or finished here. */
  #activeAtMs = performance.now();
  #rebuilds = 0;
  /** Since when a canary lies in the store that this worker could have taken. */
  #canaryWaitsSinceMs: number | undefined;

  constructor(options: QueueWorkerOptions) {
    this.#options = options;
    this.#worker = this.#open();
  }

  /**
   * Signs of life: the jobs in work, how long no job was taken or finished here, and how
   * often the worker was replaced because it took nothing.
   */
  get pulse(): Readonly<Record<'activeJobs' | 'quietMs' | 'rebuilds', number>> {
    const quietMs = performance.now() - this.#activeAtMs;
    return { activeJobs: this.#activeJobs, quietMs, rebuilds: this.#rebuilds };
  }

  /**
   * Notes that the store accepted a canary. Replaces the worker if it has ignored them
   * for too long.
   */
  async onCanary(): Promise<void> {
    const { queue, log, silentMaxMs = SILENT_MAX_MS } = this.#options;
    const nowMs = performance.now();
    this.#canaryWaitsSinceMs ??= nowMs;
    if (this.#activeJobs > 0 || nowMs - this.#canaryWaitsSinceMs <= silentMaxMs)
      return;
    log.warn(
      { queue, quietMs: Math.round(this.pulse.quietMs) },
      'Worker took no jobs and is replaced',
    );
    const silent = this.#worker;
    this.#worker = this.#open();
    this.#rebuilds += 1;
    this.#canaryWaitsSinceMs = undefined;
    const closing = silent.close(true).catch((error: unknown) => {
      log.debug({ err: error, queue }, 'Replaced worker did not close well');
    });
    await Promise.race([
      closing,
      sleep(CLOSE_TIMEOUT_MS, undefined, { ref: false }),
    ]);
  }

  /** The store did not answer: idleness then says nothing about the worker. */
  onStoreAway(): void {
    this.#canaryWaitsSinceMs = undefined;
  }

  /** @param force closes without waiting for the jobs in work */
  close(force = false): Promise<void> {
    return this.#worker.close(force);
  }

  /** Opens a worker, which takes jobs from then on. */
  #open(): BullWorker {
    const { backend, name, queue, concurrency, stop, onError, log } =
      this.#options;
    const worker = backend.worker(name, (job) => this.#take(job), {
      concurrency,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_CHECK_MS,
      maxStalledCount: ATTEMPTS_MAX,
      settings: {
        repeatStrategy,
        backoffStrategy: (attempt, _type, error) =>
          stop.aborted ? 0 : backoffMs(attempt, error),
      },
    });
    worker.on('error', onError);
    worker.on('failed', (job, error) => {
      if (!stop.aborted)
        log.warn(
          { err: error, queue, job: job?.name, jobId: job?.id },
          'Job will be tried again',
        );
    });
    return worker;
  }

  async #take(job: BullJob): Promise<void> {
    this.#noteActivity();
    if (job.name === CANARY) return;
    const { queue, onJob, process, stop } = this.#options;
    const startedMs = performance.now();
    let outcome: JobReport['outcome'] = 'failed';
    this.#activeJobs += 1;
    try {
      await process(toWorkedJob(job), stop);
      outcome = 'done';
    } catch (error) {
      // A permanent error ends the job. Otherwise the queue would repeat it for ever.
      const isFinal =
        error instanceof PermanentError && !(error instanceof FencedError);
      throw isFinal ? new UnrecoverableError(error.message) : error;
    } finally {
      this.#activeJobs -= 1;
      this.#noteActivity();
      onJob?.({ queue, outcome, durationMs: performance.now() - startedMs });
    }
  }

  #noteActivity(): void {
    this.#activeAtMs = performance.now();
    this.#canaryWaitsSinceMs = undefined;
  }
}

function toWorkedJob(job: BullJob): WorkedJob {
  return {
    id: job.id ?? '',
    name: job.name,
    data: job.data,
    // BullMQ's timestamp and delay do not add up to the scheduled time if the job is
    // late. That would make two runs for one scheduled time, so the time of the schedule
    // itself comes first.
    dueMs: job.opts.prevMillis ?? job.timestamp + (job.opts.delay ?? 0),
    attempt: job.attemptsMade + 1,
  };
}

/**
 * Returns the pause that the other side demands; otherwise it grows exponentially, with
 * jitter.
 */
function backoffMs(attempt: number, error: Error | undefined): number {
  if (error instanceof RetryableError && error.retryAfterMs !== undefined)
    return error.retryAfterMs;
  const ceilingMs = Math.min(
    BACKOFF_MAX_MS,
    BACKOFF_MIN_MS * 2 ** Math.min(attempt - 1, 10),
  );
  return Math.round(ceilingMs * (0.5 + Math.random() / 2));
}
