/**
 * This process's worker for one queue. It reports whether it takes jobs, and is replaced
 * if it stops taking them.
 *
 * A connection can die without either end noticing. The worker then waits forever,
 * although the store has jobs. Canaries reveal this: they are no-op jobs that any working
 * worker would take.
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

/** The name of the no-op job. A worker that takes it also takes other jobs. */
export const CANARY = 'canary';
/**
 * How long to wait for a worker to close. A worker that has lost its store never closes.
 */
const CLOSE_TIMEOUT_MS = 5_000;
/**
 * How long a job's lock may go without renewal before the job is given to another worker.
 * BullMQ renews the lock after half of this time.
 */
const LOCK_MS = 10_000;
const STALLED_CHECK_MS = 4_000;
/**
 * Maximum number of attempts, in practice unlimited. Attempts are counted in Postgres,
 * because the queue's store may lose its count.
 */
export const ATTEMPTS_MAX = 1_000_000;
const BACKOFF_MIN_MS = 1_000;
const BACKOFF_MAX_MS = 60_000;
/**
 * How long canaries may wait before the worker is replaced. About one time in a hundred,
 * other workers happen to take all canaries for this long, and a healthy worker is
 * replaced. That costs only one connection.
 */
const SILENT_MAX_MS = 45_000;

/** A job as its handler receives it. */
export interface WorkedJob {
  readonly id: string;
  readonly name: string;
  readonly data: JobData;
  /**
   * When the job was due, or when it was added if it was not scheduled, in milliseconds
   * since 1970.
   */
  readonly dueMs: number;
  /** The number of this delivery, starting at 1. */
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
  /** Aborted when this process stops working on jobs. */
  readonly stop: AbortSignal;
  readonly onError: (error: Error) => void;
  /** Called after every job that this worker has run, for metrics. */
  readonly onJob?: (report: JobReport) => void;
  /**
   * How long canaries may wait in the queue, without one of them being taken, before the
   * worker is replaced.
   */
  readonly silentMaxMs?: number;
}

export class QueueWorker {
  readonly #options: QueueWorkerOptions;
  #worker: BullWorker;
  #activeJobs = 0;
  /** When this worker last took or finished a job. */
  #activeAtMs = performance.now();
  #rebuilds = 0;
  /**
   * When a canary that this worker could have taken began to wait in the store; undefined
   * if none is waiting.
   */
  #canaryWaitsSinceMs: number | undefined;

  constructor(options: QueueWorkerOptions) {
    this.#options = options;
    this.#worker = this.#open();
  }

  /**
   * The state of the worker: the jobs in progress, the time since it last took or
   * finished a job, and how many times it was replaced because it took nothing.
   */
  get pulse(): Readonly<Record<'activeJobs' | 'quietMs' | 'rebuilds', number>> {
    const quietMs = performance.now() - this.#activeAtMs;
    return { activeJobs: this.#activeJobs, quietMs, rebuilds: this.#rebuilds };
  }

  /**
   * Called once a canary job has been queued. Replaces the worker if canary jobs have
   * been waiting for too long.
   */
  async onCanary(): Promise<void> {
    const { queue, log, silentMaxMs = SILENT_MAX_MS } = this.#options;
    const nowMs = performance.now();
    this.#canaryWaitsSinceMs ??= nowMs;
    if (this.#activeJobs > 0 || nowMs - this.#canaryWaitsSinceMs <= silentMaxMs)
      return;
    log.warn(
      { queue, quietMs: Math.round(this.pulse.quietMs) },
      'A worker took no jobs and is being replaced',
    );
    const silent = this.#worker;
    this.#worker = this.#open();
    this.#rebuilds += 1;
    this.#canaryWaitsSinceMs = undefined;
    const closing = silent.close(true).catch((error: unknown) => {
      log.debug(
        { err: error, queue },
        'The replaced worker did not close cleanly',
      );
    });
    await Promise.race([
      closing,
      sleep(CLOSE_TIMEOUT_MS, undefined, { ref: false }),
    ]);
  }

  /**
   * Records that the store did not respond. An idle worker is then not necessarily
   * broken.
   */
  onStoreAway(): void {
    this.#canaryWaitsSinceMs = undefined;
  }

  /**
   * Closes the worker.
   * @param force closes without waiting for the jobs in progress
   */
  close(force = false): Promise<void> {
    return this.#worker.close(force);
  }

  /** Opens a worker, which starts taking jobs immediately. */
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
          'The job will be tried again',
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
      // A permanent error ends the job; otherwise the queue would retry it forever.
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
    // If a job is late, BullMQ's timestamp and delay do not add up to the scheduled time.
    // The schedule's own time takes precedence, so that no scheduled time gets two runs.
    dueMs: job.opts.prevMillis ?? job.timestamp + (job.opts.delay ?? 0),
    attempt: job.attemptsMade + 1,
  };
}

/** Returns the pause requested by the error, or else exponential backoff with jitter. */
function backoffMs(attempt: number, error: Error | undefined): number {
  if (error instanceof RetryableError && error.retryAfterMs !== undefined)
    return error.retryAfterMs;
  const ceilingMs = Math.min(
    BACKOFF_MAX_MS,
    BACKOFF_MIN_MS * 2 ** Math.min(attempt - 1, 10),
  );
  return Math.round(ceilingMs * (0.5 + Math.random() / 2));
}
