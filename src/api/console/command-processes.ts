/**
 * Runs commands of `ledger-mirror` in separate processes, each of which can run several
 * commands in turn. Starting a process takes half a second, but a short question takes
 * only a few hundredths of a second, so an idle process is kept for the next question.
 *
 * Each command opens its own engine, so a kept process retains nothing of earlier
 * questions. Nevertheless, a process that failed, was stopped or has grown too large is
 * ended and replaced.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { Socket } from 'node:net';
import { z } from 'zod';

/** How long an idle process is kept. */
const IDLE_MS = 5 * 60_000;
/** After this time, a process that was told to end is killed. */
const END_GRACE_MS = 5_000;
/**
 * A process that occupies more memory than this is not kept. After a short question, a
 * process occupies about half of this limit, mostly for Node and DuckDB themselves.
 */
const KEPT_BYTES_MAX = 320 * 2 ** 20;
const ERRORS_CHARACTERS_MAX = 4_000;

/** What the process is asked to do. */
export interface CommandRequest {
  readonly args: readonly string[];
  /**
   * Maximum size of the output. A command that writes more is stopped, and only whole
   * lines are returned.
   */
  readonly limits?: { readonly lines: number; readonly characters: number };
}

const REPLY = z.strictObject({
  /** The exit code of the command. */
  code: z.int(),
  /** What the command wrote to stdout. */
  output: z.string(),
  /** What the command wrote to stderr. */
  errors: z.string(),
  /** Whether the output reached the limits. */
  isCut: z.boolean(),
  /** The memory that the process occupies now. */
  residentBytes: z.int(),
});
export type CommandReply = z.output<typeof REPLY>;

export interface CommandProcesses extends AsyncDisposable {
  /**
   * Runs a command that only reads. If a kept process ends without an answer, another one
   * runs the command again. The promise settles only after the process has answered or
   * ended.
   * @param signal ends the process, and with it the command
   * @throws CommandEndedError if the process ended without an answer
   */
  run(
    request: CommandRequest,
    signal: AbortSignal | undefined,
  ): Promise<CommandReply>;
}

export interface CommandProcessesOptions {
  /** The program and its arguments, which together start a process that answers. */
  readonly command: readonly [string, ...string[]];
  /** The complete environment of the processes. */
  readonly env: Readonly<Record<string, string>>;
  /** The time limit of a command. */
  readonly timeoutMs: number;
  /** How long an idle process is kept; tests use a shorter time. */
  readonly idleMs?: number;
  /**
   * After this time, a process that was told to end is killed; tests use a shorter time.
   */
  readonly graceMs?: number;
}

export function openCommandProcesses(
  options: CommandProcessesOptions,
): CommandProcesses {
  return new KeptProcesses(options);
}

/** The process ended before its command had answered. */
export class CommandEndedError extends Error {
  /** What the process wrote to stderr, perhaps nothing. */
  readonly errors: string;

  constructor(errors: string) {
    super(`the process ended without an answer: ${errors}`);
    this.errors = errors;
  }
}

class KeptProcesses implements CommandProcesses {
  readonly #options: CommandProcessesOptions;
  readonly #all = new Set<CommandProcess>();
  /** The process that waits for the next question. There is at most one. */
  #idle: CommandProcess | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: CommandProcessesOptions) {
    this.#options = options;
  }

  async run(
    request: CommandRequest,
    signal: AbortSignal | undefined,
  ): Promise<CommandReply> {
    const timeout = AbortSignal.timeout(this.#options.timeoutMs);
    const limit = signal ? AbortSignal.any([signal, timeout]) : timeout;
    const kept = this.#take();
    if (kept !== undefined) {
      try {
        return await this.#ask(kept, request, limit);
      } catch (error) {
        // The process may have ended while it was idle, or because of an earlier command.
        // This command only reads, so it can be run again.
        if (limit.aborted) throw error;
      }
    }
    return this.#ask(this.#take() ?? this.#start(), request, limit);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    this.#take();
    await Promise.all([...this.#all].map((process) => process.end()));
  }

  async #ask(
    process: CommandProcess,
    request: CommandRequest,
    limit: AbortSignal,
  ): Promise<CommandReply> {
    let isSound = false;
    try {
      const reply = await process.ask(request, limit);
      isSound = reply.code === 0 && reply.residentBytes <= KEPT_BYTES_MAX;
      return reply;
    } finally {
      if (isSound) this.#keep(process);
      else {
        void process.end();
        this.#replace();
      }
    }
  }

  #take(): CommandProcess | undefined {
    const process = this.#idle;
    this.#idle = undefined;
    clearTimeout(this.#idleTimer);
    return process;
  }

  #start(): CommandProcess {
    if (this.#isClosed) throw new Error('no more commands are run');
    const process = new CommandProcess(this.#options, () => {
      this.#all.delete(process);
      if (this.#idle === process) this.#take();
    });
    this.#all.add(process);
    return process;
  }

  #keep(process: CommandProcess): void {
    if (this.#isClosed || this.#idle !== undefined) {
      void process.end();
      return;
    }
    this.#idle = process;
    process.rest();
    this.#idleTimer = setTimeout(() => {
      void this.#take()?.end();
    }, this.#options.idleMs ?? IDLE_MS).unref();
  }

  /**
   * Starts another process in advance, so that the next question need not wait for it.
   */
  #replace(): void {
    if (!this.#isClosed && this.#idle === undefined) this.#keep(this.#start());
  }
}

/** A process that answers one request at a time. */
class CommandProcess {
  /** Resolves after the process has ended; it never rejects. */
  readonly ended: Promise<void>;
  readonly #child: ChildProcess;
  readonly #graceMs: number;
  /** What the process itself wrote to stderr, for instance that it ran out of memory. */
  #errors = '';
  #isEnded = false;

  constructor(
    { command, env, graceMs = END_GRACE_MS }: CommandProcessesOptions,
    whenEnded: () => void,
  ) {
    this.#graceMs = graceMs;
    const [program, ...args] = command;
    const child = spawn(program, args, {
      env: { ...env },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    this.#child = child;
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#errors = (this.#errors + text).slice(0, ERRORS_CHARACTERS_MAX);
    });
    child.on('error', (error) => {
      this.#errors ||= error.message;
    });
    this.ended = new Promise((resolve) => {
      child.once('close', () => {
        this.#isEnded = true;
        whenEnded();
        resolve();
      });
    });
  }

  /**
   * Sends a request, and waits for its reply.
   * @param limit ends the process
   * @throws CommandEndedError if the process ended without a reply
   */
  async ask(
    request: CommandRequest,
    limit: AbortSignal,
  ): Promise<CommandReply> {
    const child = this.#child;
    child.ref();
    child.channel?.ref();
    const stop = (): void => void this.end();
    limit.addEventListener('abort', stop);
    if (limit.aborted) stop();
    const replied = new Promise<unknown>((resolve) => {
      child.once('message', resolve);
    });
    child.send(request, (error) => {
      if (error !== null) stop();
    });
    const reply = await Promise.race([replied, this.ended]);
    limit.removeEventListener('abort', stop);
    child.removeAllListeners('message');
    if (!this.#isEnded && !limit.aborted) return REPLY.parse(reply);
    await this.ended;
    throw new CommandEndedError(this.#errors);
  }

  /** Lets this program end although the process is idle, which then ends too. */
  rest(): void {
    this.#child.unref();
    this.#child.channel?.unref();
    if (this.#child.stderr instanceof Socket) this.#child.stderr.unref();
  }

  /** Ends the process, and its command if there is one. */
  async end(): Promise<void> {
    this.#child.kill('SIGTERM');
    const impatient = setTimeout(
      () => this.#child.kill('SIGKILL'),
      this.#graceMs,
    );
    await this.ended;
    clearTimeout(impatient);
  }
}
