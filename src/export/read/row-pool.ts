/**
 * Threads that read rows: hashing and checking them is most of an export's work. They start with the first
 * large answer, are shared by all exports of the process, hold no answer's state, and keep no process alive.
 */
import { getCompileCacheDir } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { RetryableError } from '../../core/errors.ts';
import type { BlockFindings, RowQuestion } from './block-reader.ts';
import type { BlockAnswer, BlockTask } from './row-worker.ts';

/** One processor is the caller's. */
const THREADS_MAX = 4;

export interface BlockSizes {
  /** An answer's beginning is read as it comes, without a thread: most answers are no longer. */
  readonly beginningBytes: number;
  /** What a thread is given at once: it stays in the processor's cache, and costs two messages. */
  readonly blockBytes: number;
}

export const BLOCK_SIZES: BlockSizes = { beginningBytes: 2 ** 20, blockBytes: 512 * 2 ** 10 };
/** A block takes some milliseconds. */
const TASK_MS_MAX = 60_000;
/** One block's findings; the young ones die with it. */
const LIMITS = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4 };
const SCRIPT = new URL('row-worker.ts', import.meta.url);
/** With it a thread needs no compiler of its own for the few modules that it runs. */
const COMPILED = getCompileCacheDir();
const ENVIRONMENT = COMPILED === undefined ? {} : { NODE_COMPILE_CACHE: dirname(COMPILED) };

export class RowPool implements AsyncDisposable {
  readonly sizes: BlockSizes;
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
    return this.#threads.reduce((sum, thread) => sum + waitingAt(thread), 0);
  }

  /**
   * @param memory begins with `bytes` bytes of whole rows, and must not change before the promise settles
   * @throws RetryableError `ROW_THREAD_LOST` where the thread died or takes too long; the next call gets a new one
   */
  async read(question: RowQuestion, memory: SharedArrayBuffer, bytes: number): Promise<BlockFindings> {
    if (this.#isClosed) throw lost('the process is ending');
    return await this.#idlest().read({ question, memory, bytes });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    for (const thread of this.#threads) await thread?.stop(lost('the process is ending'));
  }

  #idlest(): RowThread {
    let place = 0;
    for (const [index, thread] of this.#threads.entries()) {
      if (waitingAt(thread) < waitingAt(this.#threads[place])) place = index;
    }
    const thread = this.#threads[place];
    if (thread?.isAlive === true) return thread;
    return (this.#threads[place] = new RowThread(this.#taskMsMax));
  }
}

function waitingAt(thread: RowThread | undefined): number {
  return thread?.isAlive === true ? thread.waiting : 0;
}

interface Waiting {
  readonly resolve: (findings: BlockFindings) => void;
  readonly reject: (error: Error) => void;
}

class RowThread {
  readonly #worker = new Worker(SCRIPT, { execArgv: [], env: ENVIRONMENT, resourceLimits: LIMITS });
  readonly #waiting = new Map<number, Waiting>();
  readonly #taskMsMax: number;
  #timer: NodeJS.Timeout | undefined;
  #nextId = 0;
  #isAlive = true;

  constructor(taskMsMax: number) {
    this.#taskMsMax = taskMsMax;
    this.#worker.unref();
    this.#worker.on('message', (answer: BlockAnswer) => this.#answered(answer));
    this.#worker.on('error', (error) => void this.stop(lost('it failed', error)));
    this.#worker.on('exit', () => void this.stop(lost('it ended')));
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  read(task: Omit<BlockTask, 'id'>): Promise<BlockFindings> {
    const id = (this.#nextId += 1);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      // While it has work, the process waits for it.
      this.#worker.ref();
      this.#timer ??= this.#limit();
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- threads have no origin
      this.#worker.postMessage({ id, ...task } satisfies BlockTask);
    });
  }

  /** Whoever waits gets the error. */
  async stop(error: Error): Promise<void> {
    this.#isAlive = false;
    clearTimeout(this.#timer);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    await this.#worker.terminate();
  }

  #answered({ id, findings }: BlockAnswer): void {
    this.#waiting.get(id)?.resolve(findings);
    this.#waiting.delete(id);
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#waiting.size > 0) this.#timer = this.#limit();
    else this.#worker.unref();
  }

  #limit(): NodeJS.Timeout {
    return setTimeout(
      () => void this.stop(lost(`it has been at one block for ${this.#taskMsMax} ms`)),
      this.#taskMsMax,
    );
  }
}

function lost(state: string, cause?: unknown): RetryableError {
  return new RetryableError(`Cannot export: the thread that reads its rows is gone (${state}); ask again`, {
    code: 'ROW_THREAD_LOST',
    cause,
  });
}
