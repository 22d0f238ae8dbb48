/** Where queues live: one small interface, two adapters beside it. Everything above is the same code. */
import type { BackoffStrategy, JobsOptions } from 'bullmq';

/** The payload of every job: ids only. Each job's schema says which. */
export type JobData = Readonly<Record<string, unknown>>;

/** The part of BullMQ's Job, Queue and Worker that is used, whichever store they are bound to. */
export interface BullJob {
  readonly id?: string | undefined;
  readonly name: string;
  readonly data: JobData;
  /** `prevMillis`: of a scheduled job, its scheduled time. */
  readonly opts: { readonly delay?: number | undefined; readonly prevMillis?: number | undefined };
  readonly timestamp: number;
  readonly attemptsMade: number;
}

export interface BullQueue {
  addBulk(jobs: { name: string; data: JobData; opts: JobsOptions }[]): Promise<unknown>;
  upsertJobScheduler(
    id: string,
    when: { pattern: string; tz: string },
    template: { name: string; data: JobData; opts: Pick<JobsOptions, 'attempts' | 'backoff'> },
  ): Promise<unknown>;
  getJobScheduler(id: string): Promise<
    | {
        readonly pattern?: string | undefined;
        readonly tz?: string | undefined;
        readonly next?: number | undefined;
      }
    | undefined
  >;
  getJobState(jobId: string): Promise<string>;
  getJobCounts(
    ...states: ('waiting' | 'active' | 'delayed' | 'prioritized' | 'failed' | 'completed')[]
  ): Promise<Record<string, number>>;
  /** Next job first where `asc`. */
  getJobs(
    states: ('waiting' | 'prioritized')[],
    start: number,
    end: number,
    asc: boolean,
  ): Promise<readonly Pick<BullJob, 'name' | 'timestamp'>[]>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  close(): Promise<void>;
}

export interface BullWorker {
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'failed', listener: (job: BullJob | undefined, error: Error) => void): unknown;
  close(force?: boolean): Promise<void>;
}

export type BullProcessor = (job: BullJob) => Promise<void>;

export interface BullWorkerOptions {
  readonly concurrency: number;
  readonly lockDuration: number;
  readonly stalledInterval: number;
  readonly maxStalledCount: number;
  readonly settings: { backoffStrategy: BackoffStrategy };
}

export interface QueueBackend extends AsyncDisposable {
  readonly kind: 'redis' | 'postgres';
  queue(name: string): BullQueue;
  /** What about the store endangers jobs, for people; empty where nothing does. */
  advice(): Promise<readonly string[]>;
  worker(name: string, processor: BullProcessor, options: BullWorkerOptions): BullWorker;
}

/** Of each queue. Runs in Postgres are the history; the queue keeps a short tail for its board, and events that nobody reads. */
export const RETENTION = {
  defaultJobOptions: {
    removeOnComplete: { age: 86_400, count: 500 },
    removeOnFail: { age: 7 * 86_400, count: 500 },
  },
  streams: { events: { maxLen: 1_000 } },
} as const;
