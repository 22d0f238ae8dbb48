/** Where queues live: one small interface, two adapters beside it. Everything above is the same code. */
import type { Job, Queue, Worker, WorkerOptions } from 'bullmq';

export const QUEUE_NAMES = ['sync', 'export', 'load', 'nightly'] as const;
export type QueueName = (typeof QUEUE_NAMES)[number];

/** The payload of every job: ids only. Each job's schema says which. */
export type JobData = Readonly<Record<string, unknown>>;

/** The part of BullMQ's queue, job and worker that is used, whichever store they are bound to. */
export interface BullQueue extends Pick<
  Queue<JobData, void>,
  | 'addBulk'
  | 'upsertJobScheduler'
  | 'getJobScheduler'
  | 'getJobState'
  | 'getJobCounts'
  | 'getJobs'
  | 'close'
> {
  on(event: 'error', listener: (error: Error) => void): unknown;
}
export type BullJob = Pick<
  Job<JobData>,
  'id' | 'name' | 'data' | 'opts' | 'timestamp' | 'attemptsMade'
>;
export interface BullWorker extends Pick<Worker, 'close'> {
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(
    event: 'failed',
    listener: (job: BullJob | undefined, error: Error) => void,
  ): unknown;
}
export type BullProcessor = (job: BullJob) => Promise<void>;

export interface QueueBackend extends AsyncDisposable {
  queue(name: string): BullQueue;
  /** What about the store endangers jobs, for people; empty where nothing does. */
  advice(): Promise<readonly string[]>;
  worker(
    name: string,
    processor: BullProcessor,
    options: Omit<WorkerOptions, 'connection'>,
  ): BullWorker;
}

/** Of each queue. Runs in Postgres are the history; the queue keeps a short tail for its board, and events that nobody reads. */
export const RETENTION = {
  defaultJobOptions: {
    removeOnComplete: { age: 86_400, count: 500 },
    removeOnFail: { age: 7 * 86_400, count: 500 },
  },
  streams: { events: { maxLen: 1_000 } },
} as const;
