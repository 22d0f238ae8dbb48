/**
 * One queue's worker in this process: its signs of life, and its replacement where it has gone silent.
 * A connection can die so that neither end learns of it; then the worker waits for jobs for ever while
 * the store holds some. Canaries show that: jobs that do nothing, save that somebody must take them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnrecoverableError } from 'bullmq';
import { FencedError, PermanentError, RetryableError } from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import type { BullJob, BullWorker, QueueBackend } from './backend.ts';

/** A job that does nothing: taking it proves that jobs are taken. */
export const CANARY = 'canary';
/** A worker that is cut off from its store cannot close in order. */
const CLOSE_TIMEOUT_MS = 5_000;
/** A lock not renewed for this long makes a job another worker's: renewed at half of it. */
const LOCK_MS = 10_000;
const STALLED_CHECK_MS = 4_000;
/** Attempts are counted in Postgres; the queue's own counter goes back in time with its store. */
export const ATTEMPTS_MAX = 1_000_000;
const BACKOFF_MIN_MS = 1_000;
const BACKOFF_MAX_MS = 60_000;
/** Canaries of several rounds stay untouched by bad luck once in a hundred times; replacing a worker costs one connection. */
const SILENT_MAX_MS = 45_000;

export type WorkedJob = ReturnType<typeof toWorkedJob>;

/** One delivery of a job, worked. */
export interface JobReport {
  readonly queue: string;
  readonly outcome: 'done' | 'failed';
  readonly durationMs: number;
}

export interface QueueWorkerOptions {
  readonly backend: QueueBackend;
  readonly log: Log;
  readonly queue: string;
  /** The queue's in its store. */
  readonly name: string;
  readonly concurrency: number;
  readonly process: (job: WorkedJob, signal: AbortSignal) => Promise<void>;
  /** Aborted when this process stops working jobs. */
  readonly stop: AbortSignal;
  readonly onError: (error: Error) => void;
  /** Told of every job worked here, for metrics. */
  readonly onJob?: (report: JobReport) => void;
  /** The worker is replaced when canaries were accepted for this long and none was taken. */
  readonly silentMaxMs?: number;
}

export class QueueWorker {
  readonly #options: QueueWorkerOptions;
  #worker: BullWorker;
  #activeJobs = 0;
  #atMs = performance.now();
  #rebuilds = 0;
  /** Since when the store has held a canary that this worker could have taken. */
  #temptedSinceMs: number | undefined;

  constructor(options: QueueWorkerOptions) {
    this.#options = options;
    this.#worker = this.#open();
  }

  /** Signs of life: how long no job was taken or finished here, how often the worker was replaced as it took nothing. */
  get pulse(): Readonly<Record<'activeJobs' | 'quietMs' | 'rebuilds', number>> {
    const quietMs = performance.now() - this.#atMs;
    return { activeJobs: this.#activeJobs, quietMs, rebuilds: this.#rebuilds };
  }

  /** The store has accepted a canary. Replaces the worker where it has left them alone for too long. */
  async onCanary(): Promise<void> {
    const { queue, log, silentMaxMs = SILENT_MAX_MS } = this.#options;
    const nowMs = performance.now();
    this.#temptedSinceMs ??= nowMs;
    if (this.#activeJobs > 0 || nowMs - this.#temptedSinceMs <= silentMaxMs) return;
    log.warn(
      { queue, quietMs: Math.round(this.pulse.quietMs) },
      'Worker took no jobs and is replaced',
    );
    const silent = this.#worker;
    this.#worker = this.#open();
    this.#rebuilds += 1;
    this.#temptedSinceMs = undefined;
    const closing = silent.close(true).catch((error: unknown) => {
      log.debug({ err: error, queue }, 'Replaced worker did not close well');
    });
    await Promise.race([closing, sleep(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
  }

  /** The store did not answer: idleness then says nothing about the worker. */
  onStoreAway(): void {
    this.#temptedSinceMs = undefined;
  }

  /** @param force without waiting for the jobs in work */
  close(force = false): Promise<void> {
    return this.#worker.close(force);
  }

  /** Opens a worker; it takes jobs from then on. */
  #open(): BullWorker {
    const { backend, name, queue, concurrency, stop, onError, log } = this.#options;
    const worker = backend.worker(name, (job) => this.#take(job), {
      concurrency,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_CHECK_MS,
      maxStalledCount: ATTEMPTS_MAX,
      settings: {
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
    this.#note();
    if (job.name === CANARY) return;
    const { queue, onJob, process, stop } = this.#options;
    const startedMs = performance.now();
    let outcome: JobReport['outcome'] = 'failed';
    this.#activeJobs += 1;
    try {
      await process(toWorkedJob(job), stop);
      outcome = 'done';
    } catch (error) {
      // An error that will come again ends the job: the queue must not repeat it for ever.
      const isFinal = error instanceof PermanentError && !(error instanceof FencedError);
      throw isFinal ? new UnrecoverableError(error.message) : error;
    } finally {
      this.#activeJobs -= 1;
      this.#note();
      onJob?.({ queue, outcome, durationMs: performance.now() - startedMs });
    }
  }

  #note(): void {
    this.#atMs = performance.now();
    this.#temptedSinceMs = undefined;
  }
}

function toWorkedJob(job: BullJob) {
  return {
    id: job.id ?? '',
    name: job.name,
    data: job.data,
    /**
     * When a scheduled job was due, in milliseconds since 1970. Of a job that is late, time and delay would make another
     * instant: two runs for one scheduled time.
     */
    dueMs: job.opts.prevMillis ?? job.timestamp + (job.opts.delay ?? 0),
    attempt: job.attemptsMade + 1,
  };
}

/** The delay the other side asked for, else exponential with jitter. */
function backoffMs(attempt: number, error: Error | undefined): number {
  if (error instanceof RetryableError && error.retryAfterMs !== undefined)
    return error.retryAfterMs;
  const ceilingMs = Math.min(
    BACKOFF_MAX_MS,
    BACKOFF_MIN_MS * 2 ** Math.min(attempt - 1, 10),
  );
  return Math.round(ceilingMs * (0.5 + Math.random() / 2));
}
