/**
 * The interface to the store of the queues, which is Redis or Postgres. Code above it is
 * the same for both.
 */
import type { Job, Queue, RepeatOptions, Worker, WorkerOptions } from 'bullmq';
import { nextScheduledMs } from '../time/scheduled-times.ts';

export const QUEUE_NAMES = ['sync', 'export', 'load', 'nightly'] as const;
/**
 * Connections of one process to queues in Postgres: each queue's worker listens on one of its own,
 * and statements share the others.
 */
export const QUEUE_CONNECTIONS = QUEUE_NAMES.length + 2;
export type QueueName = (typeof QUEUE_NAMES)[number];

/** The payload of every job: ids only. The schema of each job says which. */
export type JobData = Readonly<Record<string, unknown>>;

/**
 * The parts of BullMQ's queue, job and worker that are used, whichever store they are
 * bound to.
 */
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
  /** Tries a write, where reading says nothing about it. */
  probe(): Promise<void>;
  /**
   * Returns warnings about settings of the store that endanger jobs, as text for people.
   */
  advice(): Promise<readonly string[]>;
  worker(
    name: string,
    processor: BullProcessor,
    options: Omit<WorkerOptions, 'connection'>,
  ): BullWorker;
}

/**
 * For BullMQ's own schedulers: the next time of a schedule, as every other part of the
 * mirror computes it. BullMQ calls it with the schedule's options, and ends the schedule
 * without a value.
 */
export function repeatStrategy(
  afterMs: number,
  { pattern, tz = 'UTC' }: RepeatOptions,
): number | undefined {
  return pattern === undefined
    ? undefined
    : nextScheduledMs({ pattern, tz }, afterMs);
}

/**
 * What each queue keeps. The history is in the runs in Postgres; a queue keeps some
 * finished jobs for its board, and events that nobody reads.
 */
export const RETENTION = {
  defaultJobOptions: {
    removeOnComplete: { age: 86_400, count: 500 },
    removeOnFail: { age: 7 * 86_400, count: 500 },
  },
  streams: { events: { maxLen: 1_000 } },
  settings: { repeatStrategy },
} as const;
