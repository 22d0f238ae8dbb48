/**
 * The interface to the queues' store, either Redis or Postgres. All code above it is the
 * same for both.
 */
import type { Job, Queue, RepeatOptions, Worker, WorkerOptions } from 'bullmq';
import { nextScheduledMs } from '../time/scheduled-times.ts';

export const QUEUE_NAMES = ['sync', 'export', 'load', 'nightly'] as const;
/**
 * How many connections one process needs for queues in Postgres. Each queue's worker has
 * its own connection to listen on, and all statements share two more.
 */
export const QUEUE_CONNECTIONS = QUEUE_NAMES.length + 2;
export type QueueName = (typeof QUEUE_NAMES)[number];

/** The payload of a job. It consists of ids only, which each job's schema defines. */
export type JobData = Readonly<Record<string, unknown>>;

/** The parts of BullMQ's queue, job and worker that we use with either store. */
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
  /** Tests whether the store accepts writes, if a read would not reveal that. */
  probe(): Promise<void>;
  /** Opens and closes an extra connection to check that the login is still accepted. */
  proveLogin(): Promise<void>;
  /** Returns warnings, for operators, about settings of the store that endanger jobs. */
  advice(): Promise<readonly string[]>;
  worker(
    name: string,
    processor: BullProcessor,
    options: Omit<WorkerOptions, 'connection'>,
  ): BullWorker;
}

/**
 * Computes the next time of a schedule for BullMQ's schedulers, with the same function as
 * the rest of the mirror. BullMQ passes the schedule's options, and ends the schedule if
 * no time is returned.
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
 * How much each queue retains. The history consists of the runs in Postgres, so a queue
 * retains only some finished jobs for its board, and a few events that nothing reads.
 */
export const RETENTION = {
  defaultJobOptions: {
    removeOnComplete: { age: 86_400, count: 500 },
    removeOnFail: { age: 7 * 86_400, count: 500 },
  },
  streams: { events: { maxLen: 1_000 } },
  settings: { repeatStrategy },
} as const;
