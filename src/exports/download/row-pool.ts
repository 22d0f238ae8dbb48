/**
 * Threads that hash and check rows, which is most of an export's work. They start with
 * the first large response, are shared by all exports of the process, keep no state
 * between blocks, and do not keep the process alive.
 */
import { getCompileCacheDir } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { RetryableError } from '../../errors/errors.ts';
import {
  type BlockFindings,
  readBlock,
  type RowQuestion,
} from './block-reader.ts';
import { BlockMemory } from './block-memory.ts';
import type { BlockTask } from './row-worker.ts';

/**
 * Maximum number of threads in a pool. One processor is reserved for the calling
 * thread.
 */
const THREADS_MAX = 4;

export const BLOCK_SIZES = {
  /**
   * A response up to this size is read as it arrives, without a thread. Most responses
   * are within this size.
   */
  beginningBytes: 2 ** 20,
  /**
   * How much a thread reads at once. A block of this size fits in the processor's
   * cache; each block costs two messages.
   */
  blockBytes: 512 * 2 ** 10,
};
/**
 * How many blocks may be in flight beyond those that threads are reading: blocks that
 * are being filled, waiting, or being written.
 */
const SPARE_BLOCKS = 4;
/**
 * How long a thread may take for a block before it is considered lost. Normally that is
 * a few milliseconds.
 */
const TASK_MS_MAX = 60_000;
/**
 * Memory limits of a thread. It needs memory only for the findings of one block, most
 * of them short-lived.
 */
const LIMITS = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4 };
const SCRIPT = new URL('row-worker.ts', import.meta.url);
/**
 * The compile cache, which spares threads from compiling the few modules that they run.
 */
const COMPILED = getCompileCacheDir();
const ENVIRONMENT =
  COMPILED === undefined ? {} : { NODE_COMPILE_CACHE: dirname(COMPILED) };

export class RowPool implements AsyncDisposable {
  readonly sizes: typeof BLOCK_SIZES;
  readonly memory: BlockMemory;
  /** The threads; each is started when it is first needed. */
  readonly #threads: (RowThread | undefined)[];
  readonly #taskMsMax: number;
  #isClosed = false;

  constructor(
    threads = Math.min(Math.max(1, availableParallelism() - 1), THREADS_MAX),
    taskMsMax = TASK_MS_MAX,
    sizes = BLOCK_SIZES,
  ) {
    this.sizes = sizes;
    // A block is sent once it is full. Its last rows may extend it to twice this size.
    this.memory = new BlockMemory(2 * sizes.blockBytes, threads + SPARE_BLOCKS);
    this.#threads = Array.from({ length: threads });
    this.#taskMsMax = taskMsMax;
  }

  /** The number of blocks that the pool can read at once. */
  get size(): number {
    return this.#threads.length;
  }

  /** The number of live threads. */
  get started(): number {
    return this.#threads.filter((thread) => thread?.isAlive === true).length;
  }

  /** The number of blocks that are being read or are waiting for a thread. */
  get waiting(): number {
    return this.#threads.reduce(
      (sum, thread) => sum + (thread?.waiting ?? 0),
      0,
    );
  }

  /**
   * Reads a block on the thread with the least work.
   * @param rows whole rows, in memory that can be shared with the thread
   * @throws RetryableError `ROW_THREAD_LOST` if the thread crashed or takes too long;
   *   the next call gets a new thread
   */
  async read(question: RowQuestion, rows: Buffer): Promise<BlockFindings> {
    if (this.#isClosed) throw lost('the process is ending');
    const counts = this.#threads.map((thread) => thread?.waiting ?? 0);
    const idlest = counts.indexOf(Math.min(...counts));
    if (this.#threads[idlest]?.isAlive !== true)
      this.#threads[idlest] = new RowThread();
    return await this.#threads[idlest].read([question, rows], this.#taskMsMax);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    for (const thread of this.#threads)
      await thread?.stop('the process is ending');
  }
}

class RowThread {
  readonly #worker = new Worker(SCRIPT, {
    execArgv: [],
    env: ENVIRONMENT,
    resourceLimits: LIMITS,
  });
  /**
   * Callers that are waiting for their block, in the order in which the thread will
   * finish the blocks.
   */
  #asked: PromiseWithResolvers<BlockFindings>[] = [];
  isAlive = true;

  constructor() {
    this.#worker.unref();
    this.#worker.on('message', (findings: BlockFindings) =>
      this.#asked.shift()?.resolve(findings),
    );
    this.#worker.on('error', (error) => void this.stop('it failed', error));
    this.#worker.on('exit', () => void this.stop('it ended'));
  }

  get waiting(): number {
    return this.#asked.length;
  }

  async read(task: BlockTask, msMax: number): Promise<BlockFindings> {
    const answer = Promise.withResolvers<BlockFindings>();
    this.#asked.push(answer);
    // The process must not exit while the thread has work.
    this.#worker.ref();
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- threads have no origin
    this.#worker.postMessage(task);
    const limit = setTimeout(
      () => void this.stop(`it has been at one block for ${msMax} ms`),
      msMax,
    );
    try {
      return await answer.promise;
    } finally {
      clearTimeout(limit);
      if (this.#asked.length === 0) this.#worker.unref();
    }
  }

  /** Terminates the thread. Waiting callers get an error. */
  async stop(state: string, cause?: unknown): Promise<void> {
    this.isAlive = false;
    for (const { reject } of this.#asked.splice(0)) reject(lost(state, cause));
    await this.#worker.terminate();
  }
}

function lost(state: string, cause?: unknown): RetryableError {
  return new RetryableError(
    `Cannot export: the thread that reads its rows is gone (${state}); ` +
      'request it again',
    {
      code: 'ROW_THREAD_LOST',
      cause,
    },
  );
}

/** The blocks of one response that are in flight. */
interface BlockFlight {
  /**
   * Sends a block from the pool's memory, which gets it back when its rows are stored.
   * Resolves when there is room for the next one.
   * @throws the error of an earlier block
   */
  send(question: RowQuestion, rows: Buffer): Promise<void>;
  /**
   * Resolves when no block is in flight. @throws the error of the first block that failed
   */
  landed(): Promise<void>;
  /** Abandons the blocks in flight: `take` is not called for them. */
  stop(): void;
}

/**
 * Sends a response's blocks through the pool. Threads read them in any order, but
 * `take` gets them in the order of the response. Backpressure on the source comes only
 * from the limit on blocks in flight.
 * @param take called with each block, in the order of the response; its promise
 *   resolves when the rows are stored
 */
export function openFlight(
  pool: RowPool,
  take: (rows: Buffer, findings: BlockFindings) => Promise<unknown>,
): BlockFlight {
  const landings: Promise<unknown>[] = [];
  let lastTaken: Promise<unknown> = Promise.resolve();
  let isStopped = false;

  /**
   * Reads a block. If every thread is busy and has a second block waiting, the calling
   * thread reads this one itself.
   */
  async function read(question: RowQuestion, rows: Buffer) {
    const isBusy = pool.waiting >= 2 * pool.size;
    return isBusy ? readBlock(question, rows) : await pool.read(question, rows);
  }

  async function land(
    reading: Promise<BlockFindings>,
    rows: Buffer,
    before: Promise<unknown>,
  ) {
    // The promise is wrapped in an object, so that the next block can be taken without
    // waiting until the rows of this one are stored.
    const taken = Promise.all([reading, before]).then(([findings]) => ({
      stored: isStopped ? undefined : take(rows, findings),
    }));
    lastTaken = taken;
    const { stored } = await taken;
    await stored;
    // After a failure, something may still read the block, so it is not used again.
    pool.memory.giveBack(rows);
  }

  return {
    async send(question, rows) {
      const landing = land(read(question, rows), rows, lastTaken);
      // The error is thrown again when this landing is awaited.
      landing.catch(() => undefined);
      landings.push(landing);
      if (landings.length >= pool.size + SPARE_BLOCKS) await landings.shift();
    },
    async landed() {
      while (landings.length > 0) await landings.shift();
    },
    stop: () => {
      isStopped = true;
    },
  };
}
