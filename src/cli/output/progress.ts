/**
 * Live progress of a command: a line a task with bar, count, rate and time left on a terminal, log lines
 * otherwise. Both are driven by a timer, so that a silent stretch of work still shows that it lives.
 */
import { createLog, type Log, type LogLevel } from '../../core/log.ts';
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import { RateMeter } from '../../runs/progress/rate-meter.ts';
import { formatCount, formatDuration, formatQuantity, formatShare, printable } from './format.ts';
import { readableLog } from './log-lines.ts';
import { Screen, type TerminalStream } from './screen.ts';

/** What one followed run reports. */
export interface RunView {
  /** @param lines none where nothing is known at the moment: what was shown stays */
  show(lines: readonly ProgressLine[]): void;
  /** The run is over, and so is every line of it; what is shown later is nothing. `outcome`: its verdict */
  finish(outcome?: string): void;
}

export interface Progress extends Disposable {
  /** Shows a task for each line that the run reports; a line that is reported no more has ended. */
  openView(): RunView;
}

const REDRAW_MS = 120;
/** No run is silent for longer than this. */
const LOG_EVERY_MS = 10_000;
/** Tasks that a tick logs at most; more would bury everything else. */
const LOGGED_TASKS_MAX = 20;
const BAR_CHARACTERS = 20;
const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/**
 * What a command writes to `stream`: bars and readable logs on a terminal, JSON lines otherwise; no bars where it is to
 * be quiet. @returns `progress` to be disposed of, which gives the terminal back
 */
export function openTerminal(
  stream: TerminalStream & { readonly isTTY?: boolean },
  level: LogLevel,
  isQuiet = false,
): { log: Log; progress: Progress } {
  const screen = stream.isTTY === true && !isQuiet ? new Screen(stream) : undefined;
  const destination = screen && { write: (line: string) => screen.write(readableLog(line)) };
  const log = createLog(level, destination && { destination });
  return { log, progress: createProgress(log, screen) };
}

/**
 * @param screen the terminal; absent where stderr is none
 * @returns a progress that shows until it is disposed of; unfinished tasks then vanish
 */
export function createProgress(log: Log, screen?: Screen): Progress {
  const display = screen === undefined ? logTo(log) : drawOn(screen);
  const tasks = new Set<Task>();
  let timer: NodeJS.Timeout | undefined;
  const start = (line: ProgressLine): Task => {
    const task = new Task(line);
    tasks.add(task);
    timer ??= setInterval(() => display.show([...tasks]), display.everyMs).unref();
    display.started?.(task);
    return task;
  };
  return {
    openView: () => {
      const own = new Map<string, Task>();
      let isOver = false;
      const endAllBut = (lines: readonly ProgressLine[], outcome?: string): void => {
        for (const [label, task] of own) {
          if (lines.some((line) => line.label === label)) continue;
          own.delete(label);
          tasks.delete(task);
          if (task.latest.isPart !== true) display.finished(task, outcome);
        }
      };
      return {
        show: (lines) => {
          if (lines.length === 0 || isOver) return;
          endAllBut(lines);
          for (const line of lines) {
            const task = own.get(line.label) ?? start(line);
            own.set(line.label, task);
            task.update(line);
          }
        },
        finish: (outcome) => {
          isOver = true;
          endAllBut([], outcome);
        },
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
  readonly startedMs = performance.now();
  readonly #rate = new RateMeter();
  latest: ProgressLine;

  constructor(line: ProgressLine) {
    this.label = printable(line.label);
    this.latest = line;
  }

  update(line: ProgressLine): void {
    this.latest = line;
    this.#rate.add(BigInt(line.done), performance.now());
  }

  get elapsedMs(): number {
    return performance.now() - this.startedMs;
  }

  get perSecond(): number {
    return Math.round(this.#rate.perSecond);
  }

  /** Time left at the present rate; undefined where it cannot be told. */
  get leftMs(): number | undefined {
    const { done, total } = this.latest;
    const left = total === undefined ? 0n : BigInt(total) - BigInt(done);
    const perSecond = this.#rate.perSecond;
    return perSecond <= 0 || left <= 0n ? undefined : (Number(left) / perSecond) * 1000;
  }
}

function drawOn(screen: Screen): Display {
  return {
    everyMs: REDRAW_MS,
    finished: ({ label, latest, elapsedMs }, outcome) => {
      const mark = outcome === undefined || outcome === 'complete' ? '✓' : '!';
      const did = `${formatQuantity(latest.done, latest.unit)} in ${formatDuration(elapsedMs)}`;
      screen.write(`${mark} ${label}  ${did}${outcome === undefined ? '' : `  ${printable(outcome)}`}\n`);
    },
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
  const { elapsedMs, perSecond, leftMs } = task;
  const { done, total, unit, note } = task.latest;
  const spinner = SPINNER[Math.floor(elapsedMs / REDRAW_MS) % SPINNER.length] ?? '';
  const parts = [`${spinner} ${task.label.padEnd(labelWidth)}`];
  if (total === undefined) parts.push(formatQuantity(done, unit));
  else parts.push(bar(BigInt(done), BigInt(total)), formatShare(done, total, unit, ' / '));
  if (perSecond > 0) parts.push(`${formatQuantity(perSecond, unit)}/s`);
  parts.push(leftMs === undefined ? formatDuration(elapsedMs) : `${formatDuration(leftMs)} left`);
  if (note !== undefined) parts.push(printable(note));
  return parts.join('  ');
}

function bar(done: bigint, total: bigint): string {
  const percent = total <= done ? 100 : Number((done * 100n) / total);
  const filled = Math.floor((percent * BAR_CHARACTERS) / 100);
  return `${'█'.repeat(filled)}${'░'.repeat(BAR_CHARACTERS - filled)} ${String(percent).padStart(3)}%`;
}

function logTo(log: Log): Display {
  return {
    everyMs: LOG_EVERY_MS,
    started: (task) => log.info({ task: task.label }, 'Started'),
    finished: (task, outcome) => log.info({ ...facts(task), outcome }, 'Finished'),
    show: (tasks) => {
      for (const task of tasks.slice(0, LOGGED_TASKS_MAX)) log.info(facts(task), 'Progress');
      const left = tasks.length - LOGGED_TASKS_MAX;
      if (left > 0) log.info({ tasks: left }, 'More tasks in progress');
    },
  };
}

/** The task's state as fields of a log line. */
function facts({ label, latest, perSecond, elapsedMs, leftMs }: Task): Record<string, unknown> {
  const { done, total, unit, note } = latest;
  const [elapsed, left] = [Math.round(elapsedMs), leftMs && Math.round(leftMs)];
  return { task: label, done, total, unit, note, perSecond, elapsedMs: elapsed, leftMs: left };
}
