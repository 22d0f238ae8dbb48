/**
 * Live progress of a command: a line a task with bar, count, rate and time left on a terminal, log lines
 * otherwise. Both are driven by a timer, so that a silent stretch of work still shows that it lives.
 */
import type { Log } from '../../core/log.ts';
import { formatCount, formatDuration, formatQuantity, printable } from './format.ts';
import { RateMeter } from '../../core/rate-meter.ts';
import type { Screen } from './screen.ts';

export interface ProgressUpdate {
  readonly done: bigint | number;
  /** Absent where the end is not known: a spinner stands for the bar. */
  readonly total?: bigint | number;
  /** `rows`, `parties`, …; `bytes` are shown scaled. */
  readonly unit: string;
  readonly note?: string;
}

export interface ProgressTask {
  update(update: ProgressUpdate): void;
  /** Ends the task's line for good. `outcome`: a verdict or a few words; later calls do nothing. */
  finish(outcome?: string): void;
  /** The same, without a word. */
  drop(): void;
}

export interface Progress extends AsyncDisposable {
  task(label: string): ProgressTask;
}

export interface ProgressOptions {
  /** The terminal; absent where stderr is none. */
  readonly screen?: Screen | undefined;
  readonly log: Log;
}

const REDRAW_MS = 120;
/** No run is silent for longer than this. */
const LOG_EVERY_MS = 10_000;
/** Tasks that a tick logs at most; more would bury everything else. */
const LOGGED_TASKS_MAX = 20;
const BAR_CHARACTERS = 20;
const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/** @returns a progress whose tasks show until it is disposed of; unfinished ones then vanish */
export function createProgress(options: ProgressOptions): Progress {
  return options.screen === undefined ? new LoggedProgress(options.log) : new DrawnProgress(options.screen);
}

class Task {
  readonly label: string;
  readonly rate = new RateMeter();
  readonly startedMs = performance.now();
  latest: ProgressUpdate | undefined;

  constructor(label: string) {
    this.label = printable(label);
  }

  update(update: ProgressUpdate): void {
    this.latest = update;
    this.rate.add(BigInt(update.done), performance.now());
  }

  get elapsedMs(): number {
    return performance.now() - this.startedMs;
  }

  /** Time left at the present rate; undefined where it cannot be told. */
  get leftMs(): number | undefined {
    const perSecond = this.rate.perSecond;
    if (this.latest?.total === undefined || perSecond <= 0) return undefined;
    const left = BigInt(this.latest.total) - BigInt(this.latest.done);
    return left <= 0n ? undefined : (Number(left) / perSecond) * 1000;
  }
}

class DrawnProgress implements Progress {
  readonly #screen: Screen;
  readonly #tasks = new Set<Task>();
  #timer: NodeJS.Timeout | undefined;

  constructor(screen: Screen) {
    this.#screen = screen;
  }

  task(label: string): ProgressTask {
    const task = new Task(label);
    this.#tasks.add(task);
    this.#timer ??= setInterval(() => this.#draw(), REDRAW_MS).unref();
    return {
      update: (update) => task.update(update),
      finish: (outcome) => {
        if (this.#tasks.delete(task)) this.#screen.write(`${finishedLine(task, outcome)}\n`);
        this.#draw();
      },
      drop: () => {
        this.#tasks.delete(task);
        this.#draw();
      },
    };
  }

  [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#tasks.clear();
    this.#screen[Symbol.dispose]();
    return Promise.resolve();
  }

  #draw(): void {
    const tasks = [...this.#tasks];
    const room = this.#screen.linesMax;
    const shown = tasks.length > room ? tasks.slice(0, room - 1) : tasks;
    const labelWidth = Math.max(0, ...shown.map((task) => task.label.length));
    const lines = shown.map((task) => liveLine(task, labelWidth));
    if (shown.length < tasks.length) lines.push(`… and ${formatCount(tasks.length - shown.length)} more`);
    this.#screen.show(lines);
  }
}

function liveLine(task: Task, labelWidth: number): string {
  const label = task.label.padEnd(labelWidth);
  const spinner = SPINNER[Math.floor(task.elapsedMs / REDRAW_MS) % SPINNER.length] ?? '';
  const { latest } = task;
  if (latest === undefined) return `${spinner} ${label}  ${formatDuration(task.elapsedMs)}`;
  const parts = [`${spinner} ${label}`];
  if (latest.total === undefined) parts.push(formatQuantity(latest.done, latest.unit));
  else parts.push(bar(latest.done, latest.total), amount(latest.done, latest.total, latest.unit));
  const perSecond = task.rate.perSecond;
  if (perSecond > 0) parts.push(`${formatQuantity(Math.round(perSecond), latest.unit)}/s`);
  if (task.leftMs !== undefined) parts.push(`${formatDuration(task.leftMs)} left`);
  else parts.push(formatDuration(task.elapsedMs));
  if (latest.note !== undefined) parts.push(printable(latest.note));
  return parts.join('  ');
}

function bar(done: bigint | number, total: bigint | number): string {
  const whole = BigInt(total);
  const permille = whole <= 0n ? 1000n : (BigInt(done) * 1000n) / whole;
  const share = Number(permille < 0n ? 0n : permille > 1000n ? 1000n : permille) / 1000;
  const filled = Math.floor(share * BAR_CHARACTERS);
  const percent = String(Math.floor(share * 100)).padStart(3);
  return `${'█'.repeat(filled)}${'░'.repeat(BAR_CHARACTERS - filled)} ${percent}%`;
}

function amount(done: bigint | number, total: bigint | number, unit: string): string {
  const left = unit === 'bytes' ? formatQuantity(done, unit) : formatCount(done);
  return `${left} / ${formatQuantity(total, unit)}`;
}

function finishedLine(task: Task, outcome: string | undefined): string {
  const mark = outcome === undefined || outcome === 'complete' ? '✓' : '!';
  const amountDone =
    task.latest === undefined ? '' : `  ${formatQuantity(task.latest.done, task.latest.unit)}`;
  const end = outcome === undefined ? '' : `  ${printable(outcome)}`;
  return `${mark} ${task.label}${amountDone} in ${formatDuration(task.elapsedMs)}${end}`;
}

class LoggedProgress implements Progress {
  readonly #log: Log;
  readonly #tasks = new Set<Task>();
  #timer: NodeJS.Timeout | undefined;

  constructor(log: Log) {
    this.#log = log;
  }

  task(label: string): ProgressTask {
    const task = new Task(label);
    this.#tasks.add(task);
    this.#timer ??= setInterval(() => this.#logAll(), LOG_EVERY_MS).unref();
    this.#log.info({ task: task.label }, 'Started');
    return {
      update: (update) => task.update(update),
      finish: (outcome) => {
        if (!this.#tasks.delete(task)) return;
        this.#log.info({ ...facts(task), ...(outcome === undefined ? {} : { outcome }) }, 'Finished');
      },
      drop: () => void this.#tasks.delete(task),
    };
  }

  [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#tasks.clear();
    return Promise.resolve();
  }

  #logAll(): void {
    for (const task of [...this.#tasks].slice(0, LOGGED_TASKS_MAX)) this.#log.info(facts(task), 'Progress');
    const left = this.#tasks.size - LOGGED_TASKS_MAX;
    if (left > 0) this.#log.info({ tasks: left }, 'More tasks in progress');
  }
}

/** The task's state as fields of a log line. */
function facts(task: Task): Record<string, unknown> {
  const { latest, leftMs } = task;
  return {
    task: task.label,
    ...latest,
    perSecond: Math.round(task.rate.perSecond),
    elapsedMs: Math.round(task.elapsedMs),
    ...(leftMs === undefined ? {} : { leftMs: Math.round(leftMs) }),
  };
}
