/**
 * Keeps the log lines of each run, for `logs RUN`, the API and the console. Lines are batched; where the database is
 * away or a run says too much, lines are dropped and counted, and work never waits for them.
 */
import { createLog, teeLog, type Log } from '../core/log.ts';
import type { RunLine } from './store/run-log-store.ts';

const FLUSH_MS = 1_000;
const QUEUED_MAX = 2_000;
const BATCH_MAX = 500;
/** Of one run, by one process. */
const LINES_MAX = 5_000;
const RUNS_COUNTED_MAX = 1_000;

export class RunLogs implements AsyncDisposable {
  readonly #append: (lines: readonly RunLine[]) => Promise<void>;
  readonly #counts = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;
  #queued: RunLine[] = [];
  #flushing: Promise<void> = Promise.resolve();

  constructor(append: (lines: readonly RunLine[]) => Promise<void>) {
    this.#append = append;
    this.#timer = setInterval(() => void this.flush(), FLUSH_MS).unref();
  }

  /** @returns a log that also keeps what it says, from `info` on, whatever its own level */
  tee(log: Log): Log {
    return teeLog(log, createLog('info', { write: (line) => this.#take(line) }));
  }

  /** Writes what is queued. Lines that cannot be written are lost: they were shown on stderr. */
  flush(): Promise<void> {
    const lines = this.#queued.splice(0, BATCH_MAX);
    if (lines.length === 0) return this.#flushing;
    this.#flushing = this.#flushing.then(() => this.#append(lines)).catch(() => undefined);
    return this.#flushing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    while (this.#queued.length > 0) await this.flush();
    await this.#flushing;
  }

  #take(line: string): void {
    const { runId, level, time, msg, pid: _, ...fields } = JSON.parse(line) as Record<string, unknown>;
    if (typeof runId !== 'string' || this.#queued.length >= QUEUED_MAX) return;
    const count = (this.#counts.get(runId) ?? 0) + 1;
    if (count > LINES_MAX) return;
    if (this.#counts.size >= RUNS_COUNTED_MAX && !this.#counts.has(runId)) this.#counts.clear();
    this.#counts.set(runId, count);
    const said =
      count < LINES_MAX
        ? { message: String(msg), fields }
        : { message: 'Further lines of this run are not kept', fields: {} };
    this.#queued.push({ runId, at: String(time), level: String(level), ...said });
  }
}
