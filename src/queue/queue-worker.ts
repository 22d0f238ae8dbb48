/**
 * One queue's worker in this process: its signs of life, and its replacement where it has gone silent.
 * A connection can die so that neither end learns of it; then the worker waits for jobs for ever while
 * the store holds some. Canaries show that: jobs that do nothing, save that somebody must take them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnrecoverableError } from 'bullmq';
import { FencedError, PermanentError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { BullJob, BullProcessor, BullWorker } from './backend.ts';

/** A job that does nothing: taking it proves that jobs are taken. */
export const CANARY = 'canary';
/** A worker that is cut off from its store cannot close in order. */
const CLOSE_TIMEOUT_MS = 5_000;

export type WorkedJob = ReturnType<typeof toWorkedJob>;
export type JobProcessor = (job: WorkedJob, signal: AbortSignal) => Promise<void>;

/** One delivery of a job, worked. */
export interface JobReport {
  readonly queue: string;
  readonly outcome: 'done' | 'failed';
  readonly durationMs: number;
}

/** Signs of life of a worker. */
export interface Pulse {
  readonly activeJobs: number;
  /** Since a job was last taken or finished here. */
  readonly quietMs: number;
  /** How often the worker was replaced because it took nothing. */
  readonly rebuilds: number;
}

interface QueueWorkerOptions {
  readonly queue: string;
  /** Opens a worker; it takes jobs from then on. */
  readonly open: (processor: BullProcessor) => BullWorker;
  readonly process: (job: WorkedJob) => Promise<void>;
  readonly onJob: (report: JobReport) => void;
  readonly log: Log;
  /** The worker is replaced when canaries were accepted for this long and none was taken. */
  readonly silentMaxMs: number;
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

  get pulse(): Pulse {
    const quietMs = performance.now() - this.#atMs;
    return { activeJobs: this.#activeJobs, quietMs, rebuilds: this.#rebuilds };
  }

  /** The store has accepted a canary. Replaces the worker where it has left them alone for too long. */
  async onCanary(): Promise<void> {
    const nowMs = performance.now();
    this.#temptedSinceMs ??= nowMs;
    if (this.#activeJobs > 0 || nowMs - this.#temptedSinceMs <= this.#options.silentMaxMs) return;
    const { queue, log } = this.#options;
    log.warn({ queue, quietMs: Math.round(this.pulse.quietMs) }, 'Worker took no jobs and is replaced');
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

  #open(): BullWorker {
    return this.#options.open((job) => this.#take(job));
  }

  async #take(job: BullJob): Promise<void> {
    this.#note();
    if (job.name === CANARY) return;
    const { queue, onJob, process } = this.#options;
    const startedMs = performance.now();
    let outcome: JobReport['outcome'] = 'failed';
    this.#activeJobs += 1;
    try {
      await process(toWorkedJob(job));
      outcome = 'done';
    } catch (error) {
      // An error that will come again ends the job: the queue must not repeat it for ever.
      const isFinal = error instanceof PermanentError && !(error instanceof FencedError);
      throw isFinal ? new UnrecoverableError(error.message) : error;
    } finally {
      this.#activeJobs -= 1;
      this.#note();
      onJob({ queue, outcome, durationMs: performance.now() - startedMs });
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
