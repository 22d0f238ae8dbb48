/**
 * Live progress of a command: a line a task with bar, count, rate and time left on a terminal, log lines
 * otherwise. Both are driven by a timer, so that a silent stretch of work still shows that it lives.
 */
import type { Log } from '../../core/log.ts';
import { type Count, formatCount, formatDuration, formatQuantity, formatShare, printable } from './format.ts';
import { RateMeter } from '../../runs/progress/rate-meter.ts';
import type { Screen } from './screen.ts';

export interface ProgressUpdate {
  readonly done: Count;
  /** Absent where the end is not known: a spinner stands for the bar. */
  readonly total?: Count | undefined;
  /** `rows`, `parties`, …; `bytes` are shown scaled. */
  readonly unit: string;
  readonly note?: string | undefined;
}

export interface ProgressTask {
  update(update: ProgressUpdate): void;
  /** Ends the task's line for good. `outcome`: a verdict or a few words; later calls do nothing. */
  finish(outcome?: string): void;
  /** The same, without a word. */
  drop(): void;
}

export interface Progress extends Disposable {
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
export function createProgress({ screen, log }: ProgressOptions): Progress {
  const display = screen === undefined ? logTo(log) : drawOn(screen);
  const tasks = new Set<Task>();
  let timer: NodeJS.Timeout | undefined;
  return {
    task: (label) => {
      const task = new Task(label);
      tasks.add(task);
      timer ??= setInterval(() => display.show([...tasks]), display.everyMs).unref();
      display.started?.(task);
      return {
        update: (update) => task.update(update),
        finish: (outcome) => {
          if (tasks.delete(task)) display.finished(task, outcome);
        },
        drop: () => void tasks.delete(task),
      };
    },
    [Symbol.dispose]: () => {
      clearInterval(timer);
      tasks.clear();
      screen?.[Symbol.dispose]();
    },
  };
}

/** Where tasks are told. */
interface Display {
  readonly everyMs: number;
  started?(task: Task): void;
  finished(task: Task, outcome: string | undefined): void;
  /** Called `everyMs`. */
  show(tasks: readonly Task[]): void;
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

function drawOn(screen: Screen): Display {
  return {
    everyMs: REDRAW_MS,
    finished: (task, outcome) => screen.write(`${finishedLine(task, outcome)}\n`),
    show: (tasks) => {
      const room = screen.linesMax;
      const shown = tasks.length > room ? tasks.slice(0, room - 1) : tasks;
      const labelWidth = Math.max(0, ...shown.map((task) => task.label.length));
      const lines = shown.map((task) => liveLine(task, labelWidth));
      if (shown.length < tasks.length) lines.push(`… and ${formatCount(tasks.length - shown.length)} more`);
      screen.show(lines);
    },
  };
}

function liveLine(task: Task, labelWidth: number): string {
  const label = task.label.padEnd(labelWidth);
  const spinner = SPINNER[Math.floor(task.elapsedMs / REDRAW_MS) % SPINNER.length] ?? '';
  const { latest } = task;
  if (latest === undefined) return `${spinner} ${label}  ${formatDuration(task.elapsedMs)}`;
  const parts = [`${spinner} ${label}`];
  if (latest.total === undefined) parts.push(formatQuantity(latest.done, latest.unit));
  else parts.push(bar(latest.done, latest.total), formatShare(latest.done, latest.total, latest.unit, ' / '));
  const perSecond = task.rate.perSecond;
  if (perSecond > 0) parts.push(`${formatQuantity(Math.round(perSecond), latest.unit)}/s`);
  if (task.leftMs !== undefined) parts.push(`${formatDuration(task.leftMs)} left`);
  else parts.push(formatDuration(task.elapsedMs));
  if (latest.note !== undefined) parts.push(printable(latest.note));
  return parts.join('  ');
}

function bar(done: Count, total: Count): string {
  const whole = BigInt(total);
  const share = whole <= 0n ? 100n : (BigInt(done) * 100n) / whole;
  const percent = Number(share > 100n ? 100n : share);
  const filled = Math.floor((percent * BAR_CHARACTERS) / 100);
  return `${'█'.repeat(filled)}${'░'.repeat(BAR_CHARACTERS - filled)} ${String(percent).padStart(3)}%`;
}

function finishedLine(task: Task, outcome: string | undefined): string {
  const mark = outcome === undefined || outcome === 'complete' ? '✓' : '!';
  const amountDone =
    task.latest === undefined ? '' : `  ${formatQuantity(task.latest.done, task.latest.unit)}`;
  const end = outcome === undefined ? '' : `  ${printable(outcome)}`;
  return `${mark} ${task.label}${amountDone} in ${formatDuration(task.elapsedMs)}${end}`;
}

function logTo(log: Log): Display {
  return {
    everyMs: LOG_EVERY_MS,
    started: (task) => log.info({ task: task.label }, 'Started'),
    finished: (task, outcome) =>
      log.info({ ...facts(task), ...(outcome === undefined ? {} : { outcome }) }, 'Finished'),
    show: (tasks) => {
      for (const task of tasks.slice(0, LOGGED_TASKS_MAX)) log.info(facts(task), 'Progress');
      const left = tasks.length - LOGGED_TASKS_MAX;
      if (left > 0) log.info({ tasks: left }, 'More tasks in progress');
    },
  };
}

/** The task's state as fields of a log line. */
function facts(task: Task): Record<string, unknown> {
  const { latest, leftMs } = task;
  return {
    task: task.label,
    ...(latest && { done: latest.done, total: latest.total, unit: latest.unit, note: latest.note }),
    perSecond: Math.round(task.rate.perSecond),
    elapsedMs: Math.round(task.elapsedMs),
    ...(leftMs === undefined ? {} : { leftMs: Math.round(leftMs) }),
  };
}
