/** Child processes that a test starts, listens to and kills. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { waitFor } from './wait-for.ts';

/**
 * Maximum output that is kept: enough for any failing test, but limited in case a child
 * never stops printing.
 */
const OUTPUT_CHARS_MAX = 1_000_000;
/** How long to wait for a child that hangs; a busy machine takes seconds to start one. */
const CHILD_MAX_MS = 90_000;

export interface SpawnOptions {
  /** Added to this process's environment; undefined removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  readonly uid?: number;
  readonly gid?: number;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A child process. Disposing kills it with -9 if it is still running. */
export class Child implements AsyncDisposable {
  readonly #process: ChildProcess;
  readonly #closed: Promise<unknown>;
  #stdout = '';
  #stderr = '';

  constructor(
    command: string,
    args: readonly string[],
    options: SpawnOptions = {},
  ) {
    const { env, ...rest } = options;
    this.#process = spawn(command, args, {
      ...rest,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#process.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.#stdout = (this.#stdout + text).slice(-OUTPUT_CHARS_MAX);
    });
    this.#process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-OUTPUT_CHARS_MAX);
    });
    this.#process.once('error', (error) => {
      this.#stderr += `${error.message}\n`;
    });
    this.#closed = once(this.#process, 'close').catch(() => undefined);
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  get stdout(): string {
    return this.#stdout;
  }

  get stderr(): string {
    return this.#stderr;
  }

  get isRunning(): boolean {
    return (
      this.#process.pid !== undefined &&
      this.#process.exitCode === null &&
      this.#process.signalCode === null
    );
  }

  /**
   * Waits until stdout contains a match.
   * @throws Error with the child's output if the child ends first, or after `timeoutMs`
   */
  async waitForLine(
    pattern: RegExp,
    timeoutMs = CHILD_MAX_MS,
  ): Promise<RegExpExecArray> {
    return waitFor(
      () => {
        const match = pattern.exec(this.#stdout);
        if (match === null && !this.isRunning) {
          throw new Error(
            `Child ended before ${String(pattern)}:\n${this.#stdout}\n${this.#stderr}`,
          );
        }
        return match;
      },
      {
        timeoutMs,
        what: `${String(pattern)} in the output of child ${this.pid}`,
      },
    );
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /**
   * Closes stdout like a reader that has read enough: from now on, the child writes to a
   * broken pipe.
   */
  closeStdout(): void {
    this.#process.stdout?.destroy();
  }

  /**
   * Sends the signal, if there is one, and waits until the child has ended and its last
   * output has been read.
   */
  async end(signal?: NodeJS.Signals, timeoutMs = CHILD_MAX_MS): Promise<Exit> {
    if (signal !== undefined) this.#process.kill(signal);
    let isClosed = false;
    void this.#closed.finally(() => {
      isClosed = true;
    });
    await waitFor(() => isClosed, {
      timeoutMs,
      what: `end of child ${this.pid}`,
    });
    return { code: this.#process.exitCode, signal: this.#process.signalCode };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.isRunning) await this.end('SIGKILL');
  }
}

/** Runs a TypeScript or JavaScript file with this Node. */
export function runScript(
  path: string,
  args: readonly string[] = [],
  options: SpawnOptions = {},
): Child {
  return new Child(process.execPath, [path, ...args], options);
}

/** Whether a process runs. An orphan that nobody has reaped yet is dead. */
export async function isProcessAlive(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ' Z ');
  return !stat.includes(' Z ');
}
