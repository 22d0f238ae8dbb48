/**
 * The mirror's queues by name: adds, schedules and runs jobs, with a time limit on every
 * wait.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorCode, UnreachableError } from '../errors/errors.ts';
import { isConflict } from '../errors/faults.ts';
import { withTimeout } from '../concurrency/timeouts.ts';
import type { Schedule } from '../time/scheduled-times.ts';
import { isScheduleKept } from './kept-schedule.ts';
import {
  type BullJob,
  type BullQueue,
  type JobData,
  QUEUE_NAMES,
  type QueueName,
} from './backend.ts';
import {
  ATTEMPTS_MAX,
  CANARY,
  QueueWorker,
  type QueueWorkerOptions,
} from './queue-worker.ts';

export interface NewJob {
  readonly name: string;
  readonly data: JobData;
  /**
   * The job's id, without colons. If a job with this id already exists, it is not added
   * again.
   */
  readonly jobId: string;
  /** The priority; 1 is the highest. */
  readonly priority: number;
}

const RETRIED = { attempts: ATTEMPTS_MAX, backoff: { type: 'custom' } };
const ADD_TIMEOUT_MS = 15_000;
const PAYLOAD_BYTES_MAX = 16_384;
/** How long workers may take to close after they have given up on their running jobs. */
const FORCED_MS = 1_000;
/**
 * How many jobs of each state are read. That is enough to find the oldest job and the
 * canaries: jobs of the same priority are sorted by age, and canaries are among the
 * first.
 */
const LOOKED_AT_MAX = 50;
/** How often to log an outage, rather than once per connection and attempt. */
const WARN_EVERY_MS = 10_000;
/**
 * Maximum number of attempts at an operation that another worker may be carrying out at
 * the same moment, such as setting the same schedule.
 */
const CONFLICT_ATTEMPTS_MAX = 8;
const CONFLICT_PAUSE_MS = 25;
/**
 * BullMQ's error codes for a schedule whose next job, or the job after it, already
 * exists.
 */
const MADE_ELSEWHERE: readonly unknown[] = [-10, -11];
const OPEN = ['waiting', 'active', 'delayed', 'prioritized'] as const;
const COUNTED = [
  'waiting',
  'active',
  'delayed',
  'prioritized',
  'failed',
  'completed',
] as const;

interface QueuesOptions extends Pick<
  QueueWorkerOptions,
  'backend' | 'log' | 'onJob' | 'silentMaxMs'
> {
  /**
   * Derived from the mirror's identity, so that the queues of two mirrors are never mixed
   * up.
   */
  readonly prefix: string;
}

/** The number of jobs in a queue, not counting canaries. */
interface Depth {
  readonly queue: QueueName;
  /** The number of jobs in each of BullMQ's states. */
  readonly jobs: Readonly<Record<string, number>>;
  /** How long the oldest of the next jobs has been waiting; 0 if none is waiting. */
  readonly oldestMs: number;
}

export class Queues {
  readonly #options: QueuesOptions;
  readonly #queues = new Map<QueueName, BullQueue>();
  readonly #queueWorkers = new Map<QueueName, QueueWorker>();
  #warnedAtMs = -Infinity;
  /**
   * Aborted when this process stops working on jobs. Handlers then save their state and
   * release the job.
   */
  readonly #stop = new AbortController();

  constructor(options: QueuesOptions) {
    this.#options = options;
  }

  /** Returns warnings, for operators, about settings of the store that endanger jobs. */
  advice(): Promise<readonly string[]> {
    return bounded("read the settings of the queue's store", () =>
      this.#options.backend.advice(),
    );
  }

  /**
   * Tests whether the store accepts writes.
   * @throws UnreachableError if the store accepts no writes, or does not respond in time
   */
  async probe(): Promise<void> {
    await bounded("write to the queue's store", () =>
      this.#options.backend.probe(),
    );
  }

  /**
   * Checks, with an extra connection, that the store still accepts the login.
   * @throws the store's error if it rejects the login, or UnreachableError if it does not
   *   respond in time
   */
  async proveLogin(): Promise<void> {
    await bounded("log in to the queue's store", () =>
      this.#options.backend.proveLogin(),
    );
  }

  /**
   * Adds jobs to a queue.
   * @throws UnreachableError `QUEUE_UNAVAILABLE` if the store does not respond in time
   */
  async add(queue: QueueName, jobs: readonly NewJob[]): Promise<void> {
    const entries = jobs.map(({ name, data, ...opts }) => ({
      name,
      data,
      opts: { ...RETRIED, ...opts, sizeLimit: PAYLOAD_BYTES_MAX },
    }));
    await bounded(`add jobs to the queue ${queue}`, () =>
      this.#queue(queue).addBulk(entries),
    );
  }

  /** Whether the job is waiting or in progress. */
  async holds(queue: QueueName, jobId: string): Promise<boolean> {
    const look = () => this.#queue(queue).getJobState(jobId);
    const state = await bounded(`look for a job in the queue ${queue}`, look);
    return OPEN.some((open) => open === state);
  }

  /** Counts the jobs that are waiting or in progress, not counting canaries. */
  async open(queue: QueueName): Promise<number> {
    const counts = await this.counts(queue);
    const count = OPEN.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
    if (count > LOOKED_AT_MAX) return count;
    return (await this.#look(queue, OPEN)).filter(isWork).length;
  }

  /**
   * Creates a schedule if it is missing or different. Workers that start at the same
   * moment may all try; one of them creates the schedule, and the rest find it.
   * @returns whether this call created it
   */
  async keepSchedule(
    queue: QueueName,
    id: string,
    when: Schedule,
    job: { name: string; data: JobData },
  ): Promise<boolean> {
    return repeatWhile(isMadeElsewhere, () =>
      this.#keepSchedule(queue, id, when, job),
    );
  }

  async #keepSchedule(
    queue: QueueName,
    id: string,
    when: Schedule,
    job: { name: string; data: JobData },
  ): Promise<boolean> {
    const known = await bounded(`look at the schedule ${id}`, () =>
      this.#queue(queue).getJobScheduler(id),
    );
    if (isScheduleKept(known, when, Date.now())) return false;
    const make = () =>
      this.#queue(queue).upsertJobScheduler(id, when, {
        ...job,
        opts: RETRIED,
      });
    await bounded(`schedule ${id}`, make);
    return true;
  }

  async counts(queue: QueueName): Promise<Readonly<Record<string, number>>> {
    return bounded(`count the jobs of the queue ${queue}`, () =>
      this.#queue(queue).getJobCounts(...COUNTED),
    );
  }

  async depth(queue: QueueName): Promise<Depth> {
    const jobs = await this.counts(queue);
    const next = await this.#look(queue, ['waiting', 'prioritized']);
    const asked = next.filter(isWork);
    const prioritized = Math.max(
      0,
      (jobs['prioritized'] ?? 0) - (next.length - asked.length),
    );
    // Read the clock only once. With two readings, an empty queue could seem to be a
    // millisecond old.
    const nowMs = Date.now();
    const oldestMs = Math.max(0, ...asked.map((job) => nowMs - job.timestamp));
    return { queue, jobs: { ...jobs, prioritized }, oldestMs };
  }

  /** Returns BullMQ's own queues, for its board. */
  forBoard(): readonly (readonly [QueueName, BullQueue])[] {
    return QUEUE_NAMES.map((name) => [name, this.#queue(name)] as const);
  }

  /**
   * Sends a canary to every queue that this process takes jobs from, unless one is still
   * waiting there. A worker that ignores canaries is replaced.
   * @throws UnreachableError `QUEUE_UNAVAILABLE`
   */
  async sendCanaries(workerId: string): Promise<void> {
    const opts = {
      jobId: `${CANARY}.${workerId}`,
      priority: 1,
      removeOnComplete: true,
      removeOnFail: true,
    };
    const sending = [...this.#queueWorkers].map(
      async ([queue, queueWorker]) => {
        const send = () =>
          this.#queue(queue).addBulk([{ name: CANARY, data: {}, opts }]);
        try {
          await bounded(`send a canary through the queue ${queue}`, send);
        } catch (error) {
          queueWorker.onStoreAway();
          throw error;
        }
        if (!this.#stop.signal.aborted) await queueWorker.onCanary();
      },
    );
    await Promise.all(sending);
  }

  /** Returns the pulse of this process's worker on each queue. */
  pulses(): readonly (QueueWorker['pulse'] & { readonly queue: QueueName })[] {
    return [...this.#queueWorkers].map(([queue, { pulse }]) => ({
      queue,
      ...pulse,
    }));
  }

  /** Takes jobs from one queue until the queues are closed. */
  work(
    queue: QueueName,
    concurrency: number,
    process: QueueWorkerOptions['process'],
  ): void {
    const { signal: stop } = this.#stop;
    const onError = (error: Error): void => this.#reportError(error, queue);
    const own = {
      queue,
      name: this.#fullName(queue),
      concurrency,
      process,
      stop,
      onError,
    };
    this.#queueWorkers.set(
      queue,
      new QueueWorker({ ...this.#options, ...own }),
    );
  }

  /**
   * Stops taking jobs and gives handlers `graceMs` to save their state. Jobs not released
   * by then are treated as stalled, and another worker takes them over. Jobs can still be
   * added. A second call does nothing.
   */
  async stopWorking(graceMs: number): Promise<void> {
    this.#stop.abort(
      new DOMException('this process is stopping', 'AbortError'),
    );
    const queueWorkers = [...this.#queueWorkers.values()];
    this.#queueWorkers.clear();
    const close = async (limitMs: number, force: boolean): Promise<boolean> => {
      const closing = Promise.all(
        queueWorkers.map((queueWorker) => queueWorker.close(force)),
      );
      return Promise.race([
        closing.then(() => true),
        sleep(limitMs, false, { ref: false }),
      ]);
    };
    if (await close(graceMs, false)) return;
    this.#options.log.warn(
      { graceMs },
      'Jobs did not stop in time and will be taken over',
    );
    await close(FORCED_MS, true);
  }

  /** Stops working, unless that has already happened, and closes every connection. */
  async close(graceMs: number): Promise<void> {
    await this.stopWorking(graceMs);
    const closing = Promise.allSettled(
      [...this.#queues.values()].map((queue) => queue.close()),
    );
    await Promise.race([closing, sleep(2_000, undefined, { ref: false })]);
    this.#queues.clear();
    await this.#options.backend[Symbol.asyncDispose]();
  }

  /**
   * Logs a queue's error. Errors are ignored while this process is stopping, because
   * sockets that close after their pools report errors.
   */
  #reportError(error: Error, queue: QueueName): void {
    if (this.#stop.signal.aborted) return;
    const { log } = this.#options;
    const message = 'Queue connection failed';
    if (performance.now() - this.#warnedAtMs > WARN_EVERY_MS) {
      this.#warnedAtMs = performance.now();
      log.warn({ err: error, queue }, message);
    } else {
      log.debug({ err: error, queue }, message);
    }
  }

  /** Reads the first jobs of each state, including canaries. */
  async #look(
    queue: QueueName,
    states: readonly (typeof OPEN)[number][],
  ): Promise<readonly BullJob[]> {
    const look = () =>
      this.#queue(queue).getJobs([...states], 0, LOOKED_AT_MAX - 1, true);
    const jobs: readonly (BullJob | undefined)[] = await bounded(
      `look at the queue ${queue}`,
      look,
    );
    // A job that ended between the count and this read is missing.
    return jobs.filter((job) => job !== undefined);
  }

  #fullName(queue: QueueName): string {
    return `${this.#options.prefix}-${queue}`;
  }

  #queue(name: QueueName): BullQueue {
    const known = this.#queues.get(name);
    if (known !== undefined) return known;
    const queue = this.#options.backend.queue(this.#fullName(name));
    queue.on('error', (error) => this.#reportError(error, name));
    this.#queues.set(name, queue);
    return queue;
  }
}

/** Whether the job is not a canary. */
function isWork({ name }: BullJob): boolean {
  return name !== CANARY;
}

/** Whether another worker has just queued the schedule's next job. */
function isMadeElsewhere(error: unknown): boolean {
  return (
    error instanceof Error &&
    'code' in error &&
    MADE_ELSEWHERE.includes(error.code)
  );
}

/** Whether Postgres has rolled the statement back in favour of another worker's. */
function isRolledBack(error: unknown): boolean {
  return isConflict(errorCode(error));
}

/** Repeats `work`, a limited number of times, while it fails with such an error. */
async function repeatWhile<Result>(
  mayPass: (error: unknown) => boolean,
  work: () => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (!mayPass(error) || attempt === CONFLICT_ATTEMPTS_MAX) throw error;
      await sleep(CONFLICT_PAUSE_MS * attempt);
    }
  }
}

/**
 * Limits the wait for the store, because BullMQ itself waits indefinitely. Also repeats a
 * statement that was the victim of a deadlock, which BullMQ does not do.
 */
function bounded<Result>(
  action: string,
  work: () => Promise<Result>,
): Promise<Result> {
  const late = `Cannot ${action}: the queue's store did not answer within ${ADD_TIMEOUT_MS} ms`;
  return withTimeout(
    ADD_TIMEOUT_MS,
    () => repeatWhile(isRolledBack, work),
    () => new UnreachableError(late, { code: 'QUEUE_UNAVAILABLE' }),
  );
}
