/** The mirror's queues by name: adding, scheduling and working jobs, with every wait bounded. */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnrecoverableError } from 'bullmq';
import { FencedError, PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { BullJob, BullQueue, BullWorker, JobData, QueueBackend } from './backend.ts';

export const QUEUE_NAMES = ['walk', 'export', 'load', 'nightly'] as const;
export type QueueName = (typeof QUEUE_NAMES)[number];

export interface NewJob {
  readonly name: string;
  readonly data: JobData;
  /** Adding a job whose id is there already does nothing. No colon in it. */
  readonly jobId: string;
  /** 1 is served first. */
  readonly priority: number;
}

export interface WorkedJob {
  readonly id: string;
  readonly name: string;
  readonly data: JobData;
  /** The slot a scheduled job was due at, in milliseconds since 1970. */
  readonly dueMs: number;
  readonly attempt: number;
}

/** Signs of life of this process's worker on one queue. */
export interface Pulse {
  readonly queue: QueueName;
  readonly activeJobs: number;
  /** Since a job was last taken or finished here. */
  readonly quietMs: number;
}

export type JobProcessor = (job: WorkedJob, signal: AbortSignal) => Promise<void>;

/** A lock not renewed for this long makes a job another worker's: renewed at half of it. */
const LOCK_MS = 10_000;
const STALLED_CHECK_MS = 4_000;
/** Attempts are counted in Postgres; the queue's own counter goes back in time with its store. */
const ATTEMPTS_MAX = 1_000_000;
const BACKOFF_MIN_MS = 1_000;
const BACKOFF_MAX_MS = 60_000;
const ADD_TIMEOUT_MS = 15_000;
const PAYLOAD_BYTES_MAX = 16_384;
/** A job that does nothing: that it was taken proves that jobs are. */
const CANARY = 'canary';

export interface QueuesOptions {
  readonly backend: QueueBackend;
  /** Derived from the source: queues of two mirrors never mix. */
  readonly prefix: string;
  readonly log: Log;
}

export class Queues implements AsyncDisposable {
  readonly #backend: QueueBackend;
  readonly #prefix: string;
  readonly #log: Log;
  readonly #queues = new Map<QueueName, BullQueue>();
  readonly #workers = new Set<BullWorker>();
  readonly #pulses = new Map<QueueName, { activeJobs: number; atMs: number }>();
  /** Aborted when this process stops working jobs: handlers checkpoint and give the job back. */
  readonly #stop = new AbortController();

  constructor(options: QueuesOptions) {
    this.#backend = options.backend;
    this.#prefix = options.prefix;
    this.#log = options.log;
  }

  get kind(): 'redis' | 'postgres' {
    return this.#backend.kind;
  }

  advice(): Promise<readonly string[]> {
    return bounded("read the settings of the queue's store", () => this.#backend.advice());
  }

  /** @throws RetryableError `QUEUE_UNAVAILABLE` where the store does not answer in time */
  async add(queue: QueueName, jobs: readonly NewJob[]): Promise<void> {
    const entries = jobs.map((job) => ({
      name: job.name,
      data: job.data,
      opts: {
        jobId: job.jobId,
        priority: job.priority,
        attempts: ATTEMPTS_MAX,
        backoff: { type: 'custom' },
        sizeLimit: PAYLOAD_BYTES_MAX,
      },
    }));
    await bounded(`add jobs to the queue ${queue}`, () => this.#queue(queue).addBulk(entries));
  }

  /** Upserted at every start, so that a changed schedule replaces the old one. */
  async schedule(
    queue: QueueName,
    id: string,
    when: { pattern: string; tz: string },
    job: { name: string; data: JobData },
  ): Promise<void> {
    await bounded(`schedule ${id}`, () =>
      this.#queue(queue).upsertJobScheduler(id, when, {
        name: job.name,
        data: job.data,
        opts: { attempts: ATTEMPTS_MAX, backoff: { type: 'custom' } },
      }),
    );
  }

  async counts(queue: QueueName): Promise<Readonly<Record<string, number>>> {
    return bounded(`count the jobs of the queue ${queue}`, () =>
      this.#queue(queue).getJobCounts('waiting', 'active', 'delayed', 'prioritized', 'failed', 'completed'),
    );
  }

  /** Sends a canary through every queue that this process works; one that still waits is not sent again. */
  async sendCanaries(workerId: string): Promise<void> {
    for (const queue of this.#pulses.keys()) {
      const opts = {
        jobId: `${CANARY}.${workerId}`,
        priority: 1,
        removeOnComplete: true,
        removeOnFail: true,
      };
      await bounded(`send a canary through the queue ${queue}`, () =>
        this.#queue(queue).addBulk([{ name: CANARY, data: {}, opts }]),
      );
    }
  }

  pulses(): readonly Pulse[] {
    const nowMs = performance.now();
    return [...this.#pulses].map(([queue, { activeJobs, atMs }]) => ({
      queue,
      activeJobs,
      quietMs: nowMs - atMs,
    }));
  }

  /** Takes jobs of one queue until the queues are closed. */
  work(queue: QueueName, concurrency: number, process: JobProcessor): void {
    this.#pulses.set(queue, { activeJobs: 0, atMs: performance.now() });
    const worker = this.#backend.worker(this.#fullName(queue), (job) => this.#take(queue, job, process), {
      concurrency,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_CHECK_MS,
      maxStalledCount: ATTEMPTS_MAX,
      settings: {
        backoffStrategy: (attempt, _type, error) => backoffMs(attempt, error, this.#stop.signal),
      },
    });
    worker.on('error', (error) => this.#complain(error, queue));
    worker.on('failed', (job, error) => {
      if (!this.#stop.signal.aborted)
        this.#log.warn({ err: error, queue, job: job?.name, jobId: job?.id }, 'Job will be tried again');
    });
    this.#workers.add(worker);
  }

  /**
   * Stops taking jobs, lets handlers checkpoint for `graceMs`, then lets go: what was not given back is
   * found stalled by the next worker.
   */
  async close(graceMs: number): Promise<void> {
    this.#stop.abort(new DOMException('this process is stopping', 'AbortError'));
    const closing = Promise.all([...this.#workers].map((worker) => worker.close()));
    const isClosed = await Promise.race([closing.then(() => true), sleep(graceMs, false, { ref: false })]);
    if (!isClosed) {
      this.#log.warn({ graceMs }, 'Jobs did not stop in time and will be taken over');
      await Promise.race([
        Promise.all([...this.#workers].map((worker) => worker.close(true))),
        sleep(1_000, undefined, { ref: false }),
      ]);
    }
    await Promise.race([
      Promise.allSettled([...this.#queues.values()].map((queue) => queue.close())),
      sleep(2_000, undefined, { ref: false }),
    ]);
    this.#workers.clear();
    this.#queues.clear();
    await this.#backend[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close(5_000);
  }

  async #take(queue: QueueName, job: BullJob, process: JobProcessor): Promise<void> {
    const pulse = this.#pulses.get(queue) ?? { activeJobs: 0, atMs: 0 };
    pulse.atMs = performance.now();
    if (job.name === CANARY) return;
    pulse.activeJobs += 1;
    try {
      await once(process, job, this.#stop.signal);
    } finally {
      pulse.activeJobs -= 1;
      pulse.atMs = performance.now();
    }
  }

  /** Sockets outlive their pools for a moment: what a server that stops tells them is no news. */
  #complain(error: Error, queue: QueueName): void {
    if (!this.#stop.signal.aborted) this.#log.warn({ err: error, queue }, 'Queue connection failed');
  }

  #fullName(queue: QueueName): string {
    return `${this.#prefix}-${queue}`;
  }

  #queue(name: QueueName): BullQueue {
    const known = this.#queues.get(name);
    if (known !== undefined) return known;
    const queue = this.#backend.queue(this.#fullName(name));
    queue.on('error', (error) => this.#complain(error, name));
    this.#queues.set(name, queue);
    return queue;
  }
}

/** An error that will come again ends the job: the queue must not repeat it for ever. */
async function once(process: JobProcessor, job: BullJob, signal: AbortSignal): Promise<void> {
  try {
    await process(toWorked(job), signal);
  } catch (error) {
    if (error instanceof PermanentError && !(error instanceof FencedError))
      throw new UnrecoverableError(error.message);
    throw error;
  }
}

function toWorked(job: BullJob): WorkedJob {
  return {
    id: job.id ?? '',
    name: job.name,
    data: job.data,
    dueMs: job.timestamp + (job.opts.delay ?? 0),
    attempt: job.attemptsMade + 1,
  };
}

/** What the other side asked for, else exponential with jitter; at once where we are only stopping. */
function backoffMs(attempt: number, error: Error | undefined, stop: AbortSignal): number {
  if (stop.aborted) return 0;
  if (error instanceof RetryableError && error.retryAfterMs !== undefined) return error.retryAfterMs;
  const ceilingMs = Math.min(BACKOFF_MAX_MS, BACKOFF_MIN_MS * 2 ** Math.min(attempt - 1, 10));
  return Math.round(ceilingMs * (0.5 + Math.random() / 2));
}

/** BullMQ waits for its store as long as it takes; a caller must not. */
async function bounded<Result>(action: string, work: () => Promise<Result>): Promise<Result> {
  const timeout = new AbortController();
  try {
    return await Promise.race([
      work(),
      sleep(ADD_TIMEOUT_MS, undefined, { signal: timeout.signal, ref: false }).then(() => {
        throw new UnreachableError(
          `Cannot ${action}: the queue's store did not answer within ${ADD_TIMEOUT_MS} ms`,
          {
            code: 'QUEUE_UNAVAILABLE',
          },
        );
      }),
    ]);
  } finally {
    timeout.abort();
  }
}
