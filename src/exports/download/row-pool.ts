/**
 * Threads that read rows: hashing and checking them is most of an export's work. They
 * start with the first large answer, are shared by all exports of the process, hold no
 * answer's state, and keep no process alive.
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
import type { BlockTask } from './row-worker.ts';

/** One processor is the caller's. */
const THREADS_MAX = 4;

export const BLOCK_SIZES = {
  /**
   * An answer's beginning is read as it comes, without a thread: most answers are no
   * longer.
   */
  beginningBytes: 2 ** 20,
  /**
   * What a thread is given at once: it stays in the processor's cache, and costs two
   * messages and a copy.
   */
  blockBytes: 512 * 2 ** 10,
};
/** A block takes some milliseconds. */
const TASK_MS_MAX = 60_000;
/** One block's findings; the young ones die with it. */
const LIMITS = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4 };
const SCRIPT = new URL('row-worker.ts', import.meta.url);
/** With it a thread needs no compiler of its own for the few modules that it runs. */
const COMPILED = getCompileCacheDir();
const ENVIRONMENT =
  COMPILED === undefined ? {} : { NODE_COMPILE_CACHE: dirname(COMPILED) };

export class RowPool implements AsyncDisposable {
  readonly sizes: typeof BLOCK_SIZES;
  /** Started when they are needed. */
  readonly #threads: (RowThread | undefined)[];
  readonly #taskMsMax: number;
  #isClosed = false;

  constructor(
    threads = Math.min(Math.max(1, availableParallelism() - 1), THREADS_MAX),
    taskMsMax = TASK_MS_MAX,
    sizes = BLOCK_SIZES,
  ) {
    this.sizes = sizes;
    this.#threads = Array.from({ length: threads });
    this.#taskMsMax = taskMsMax;
  }

  /** How many blocks it can read at once. */
  get size(): number {
    return this.#threads.length;
  }

  /** Threads that live. */
  get started(): number {
    return this.#threads.filter((thread) => thread?.isAlive === true).length;
  }

  /** Blocks that wait for a thread, or are being read. */
  get waiting(): number {
    return this.#threads.reduce(
      (sum, thread) => sum + (thread?.waiting ?? 0),
      0,
    );
  }

  /**
   * @param rows whole ones
   * @throws RetryableError `ROW_THREAD_LOST` where the thread died or takes too long; the
   *   next call gets a new one
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
  /** Answered in the order in which they were asked. */
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
    // While it has work, the process waits for it.
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

  /** Callers that wait get the error. */
  async stop(state: string, cause?: unknown): Promise<void> {
    this.isAlive = false;
    for (const { reject } of this.#asked.splice(0)) reject(lost(state, cause));
    await this.#worker.terminate();
  }
}

function lost(state: string, cause?: unknown): RetryableError {
  return new RetryableError(
    `Cannot export: the thread that reads its rows is gone (${state}); ask again`,
    {
      code: 'ROW_THREAD_LOST',
      cause,
    },
  );
}

/** Blocks beside those that threads are reading: filled, waiting, being written. */
const SPARE_BLOCKS = 4;

/** What is on its way. */
interface BlockFlight {
  /**
   * Resolves when there is room for another block. @throws what an earlier block failed
   * of
   */
  send(question: RowQuestion, rows: Buffer): Promise<void>;
  /**
   * Resolves when nothing is on its way. @throws what the first block failed of that did
   */
  landed(): Promise<void>;
  /** In-flight reads are abandoned: no block is taken any more. */
  stop(): void;
}

/**
 * An answer's blocks on their way through the pool: read by any thread in any order,
 * taken in the order of the answer. What may be on its way at once is all that holds the
 * source back.
 * @param take called in the order of the answer; resolves when the rows are stored
 */
export function openFlight(
  pool: RowPool,
  take: (rows: Buffer, findings: BlockFindings) => Promise<unknown>,
): BlockFlight {
  const landings: Promise<unknown>[] = [];
  let lastTaken: Promise<unknown> = Promise.resolve();
  let isStopped = false;

  /**
   * Where every thread has a block in hand and one waiting, this thread has time to read
   * one itself.
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
    // Wrapped: the next block is taken after this one is, not after its rows are stored.
    const taken = Promise.all([reading, before]).then(([findings]) => ({
      stored: isStopped ? undefined : take(rows, findings),
    }));
    lastTaken = taken;
    const { stored } = await taken;
    await stored;
  }

  return {
    async send(question, rows) {
      const landing = land(read(question, rows), rows, lastTaken);
      // Met again where it is waited for.
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
