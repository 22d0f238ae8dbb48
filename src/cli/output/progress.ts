/**
 * Live progress of a command. A terminal shows one line per task with a bar, count, rate
 * and time left; other outputs get log lines. Both are driven by a timer, so that a
 * command that is busy but has no output still shows that it is alive.
 */
import type { WriteStream } from 'node:tty';
import { styleText } from 'node:util';
import { createLog, type Log, type LogLevel } from '../../logging/log.ts';
import { type ProgressLine, RateMeter } from '../../runs/progress.ts';
import {
  formatCount,
  formatDuration,
  formatQuantity,
  formatShare,
} from '../../format/format.js';
import { printable, truncate } from './format.ts';

export interface Progress extends Disposable {
  /**
   * Opens the view of one followed run. It shows one task for each progress line of the
   * run. A task ends when its line is no longer reported.
   */
  openView(): {
    /**
     * @param lines empty if the progress is currently unknown; the last state then stays
     *   visible
     */
    show(lines: readonly ProgressLine[]): void;
    /** Ends the run and all of its lines. Later calls to `show` do nothing. */
    finish(outcome: string): void;
  };
}

/** The parts of stderr that a screen uses. */
type TerminalStream = Partial<
  Pick<WriteStream, 'isTTY' | 'columns' | 'rows'>
> & {
  write(text: string): unknown;
};
type Screen = ReturnType<typeof openScreen>;
type Task = ReturnType<typeof startTask>;

const REDRAW_MS = 120;
/**
 * How often progress is logged without a terminal: the longest silence of a run.
 */
const LOG_EVERY_MS = 10_000;
/**
 * Maximum number of tasks logged per tick; more would drown everything else in the log.
 */
const LOGGED_TASKS_MAX = 20;
const BAR_CHARACTERS = 20;
const COLUMNS_DEFAULT = 80;
const ROWS_DEFAULT = 24;
const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/**
 * Opens the output of a command on `stream`: bars and readable logs on a terminal, JSON
 * lines otherwise. If `isQuiet`, there are no bars.
 * @returns `progress`, which restores the terminal when it is disposed of, and `notices`,
 *   a log for messages that the user must see, which a terminal shows at any log level
 */
export function openTerminal(
  stream: TerminalStream,
  level: LogLevel,
  isQuiet = false,
): { log: Log; notices: Log; progress: Progress } {
  const screen =
    stream.isTTY === true && !isQuiet ? openScreen(stream) : undefined;
  const destination = screen && {
    write: (line: string) => screen.write(readableLog(line)),
  };
  const log = createLog(level, destination);
  const notices = screen === undefined ? log : createLog('info', destination);
  return { log, notices, progress: createProgress(log, screen) };
}

/**
 * Creates the progress display.
 * @param screen the terminal; absent if stderr is not a terminal
 * @returns a progress display that is shown until it is disposed of; unfinished tasks
 *   then disappear
 */
export function createProgress(log: Log, screen?: Screen): Progress {
  /** The tasks of each open view, by their labels. */
  const views = new Set<Map<string, Task>>();
  const tick = () => {
    const tasks = [...views].flatMap((view) => [...view.values()]);
    if (screen !== undefined) return screen.draw(tasks);
    for (const task of tasks.slice(0, LOGGED_TASKS_MAX))
      log.info(measure(task), 'Progress');
    const left = tasks.length - LOGGED_TASKS_MAX;
    if (left > 0) log.info({ tasks: left }, 'More tasks in progress');
  };
  let timer: NodeJS.Timeout | undefined;
  const start = (line: ProgressLine) => {
    timer ??= setInterval(
      tick,
      screen === undefined ? LOG_EVERY_MS : REDRAW_MS,
    ).unref();
    if (screen === undefined) log.info({ task: line.label }, 'Started');
    return startTask(line);
  };
  const endAllBut = (
    view: Map<string, Task>,
    kept: readonly ProgressLine[],
    outcome?: string,
  ) => {
    for (const task of view.values()) {
      const { label, isPart } = task.latest;
      if (kept.some((line) => line.label === label)) continue;
      view.delete(label);
      // A task that is part of a larger task ends silently.
      if (isPart === true) continue;
      if (screen === undefined)
        log.info({ ...measure(task), outcome }, 'Finished');
      else screen.write(describeEnd(task, outcome));
    }
  };
  return {
    openView: () => {
      const view = new Map<string, Task>();
      views.add(view);
      return {
        show: (lines) => {
          if (lines.length === 0 || !views.has(view)) return;
          endAllBut(view, lines);
          for (const line of lines) {
            const task = view.get(line.label) ?? start(line);
            view.set(line.label, task);
            task.latest = line;
            task.rate.add(BigInt(line.done), performance.now());
          }
        },
        finish: (outcome) => {
          if (views.delete(view)) endAllBut(view, [], outcome);
        },
      };
    },
    [Symbol.dispose]: () => {
      clearInterval(timer);
      views.clear();
      screen?.[Symbol.dispose]();
    },
  };
}

function startTask(latest: ProgressLine) {
  return { startedMs: performance.now(), rate: new RateMeter(), latest };
}

/**
 * Returns the task's state as fields of a log line. The time left is included if the
 * current rate allows an estimate.
 */
function measure({
  latest: { label, done, total, unit, note },
  startedMs,
  rate: { perSecond },
}: Task) {
  const left = Number(BigInt(total ?? done) - BigInt(done));
  const leftMs =
    perSecond > 0 && left > 0
      ? Math.round((left / perSecond) * 1000)
      : undefined;
  const elapsedMs = Math.round(performance.now() - startedMs);
  const task = printable(label);
  return {
    task,
    done,
    total,
    unit,
    note,
    perSecond: Math.round(perSecond),
    elapsedMs,
    leftMs,
  };
}

/**
 * Describes an ended task. The outcome defaults to `complete`, because a task that ends
 * while its run continues is done. Tasks that are still shown when the run ends get the
 * run's outcome.
 *
 * Progress is reported a few times a second, so the last count is seldom the final one. It
 * is shown only if it reached a known total, or if the task failed; the run's summary has
 * the final counts.
 */
function describeEnd(ended: Task, outcome = 'complete'): string {
  const { task, done, total, unit, elapsedMs } = measure(ended);
  const quantity = formatQuantity(done, unit);
  const duration = formatDuration(elapsedMs);
  if (outcome !== 'complete')
    return `! ${task}  ${quantity} so far, in ${duration}  ${printable(outcome)}\n`;
  const reached = done === total ? `${quantity} ` : '';
  return `✓ ${task}  ${reached}in ${duration}\n`;
}

function liveLine(
  state: ReturnType<typeof measure>,
  labelWidth: number,
): string {
  const { task, done, total, unit, note, perSecond, elapsedMs, leftMs } = state;
  const spinner = SPINNER[Math.floor(elapsedMs / REDRAW_MS) % SPINNER.length];
  const parts = [`${spinner} ${task.padEnd(labelWidth)}`];
  if (total === undefined) parts.push(formatQuantity(done, unit));
  else
    parts.push(
      bar(BigInt(done), BigInt(total)),
      formatShare(done, total, unit, ' / '),
    );
  if (perSecond > 0) parts.push(`${formatQuantity(perSecond, unit)}/s`);
  parts.push(
    leftMs === undefined
      ? formatDuration(elapsedMs)
      : `${formatDuration(leftMs)} left`,
  );
  if (note !== undefined) parts.push(printable(note));
  return parts.join('  ');
}

function bar(done: bigint, total: bigint): string {
  const percent = total <= done ? 100 : Number((done * 100n) / total);
  const filled = Math.floor((percent * BAR_CHARACTERS) / 100);
  return (
    `${'█'.repeat(filled)}${'░'.repeat(BAR_CHARACTERS - filled)} ` +
    `${String(percent).padStart(3)}%`
  );
}

/**
 * Opens a screen, which controls the bottom lines of a terminal: they are redrawn in
 * place, and everything else is written above them. Logs and progress share one screen,
 * so that they do not garble each other.
 * @returns a screen; disposing of it removes the bottom lines, and it can be used again
 */
function openScreen(stream: TerminalStream) {
  let lines: readonly string[] = [];
  const redraw = (above: string, below: readonly string[]) => {
    const clear =
      lines.length === 0 ? '' : `\u001B[${lines.length}A\r\u001B[0J`;
    lines = below;
    if (clear !== '' || above !== '' || below.length > 0)
      stream.write(`${clear}${above}${below.join('')}`);
  };
  return {
    /** Writes whole lines above the bottom lines. */
    write: (text: string) => redraw(text, lines),
    draw: (tasks: readonly Task[]) => {
      // A terminal that does not know its size reports 0 or nothing. Leave at least one
      // line of the window free for the text above.
      const columns = (stream.columns || COLUMNS_DEFAULT) - 1;
      const room = Math.max(1, (stream.rows || ROWS_DEFAULT) - 2);
      const states = tasks
        .slice(0, tasks.length > room ? room - 1 : room)
        .map(measure);
      const labelWidth = Math.max(0, ...states.map(({ task }) => task.length));
      const below = states.map((state) => liveLine(state, labelWidth));
      if (states.length < tasks.length)
        below.push(`… and ${formatCount(tasks.length - states.length)} more`);
      redraw(
        '',
        below.map((line) => `${truncate(line, columns)}\n`),
      );
    },
    [Symbol.dispose]: () => redraw('', []),
  };
}

const LOGGED_CHARACTERS_MAX = 200;
type Style = Parameters<typeof styleText>[0];
const STYLES: Readonly<Record<string, Style>> = {
  warn: 'yellow',
  error: 'red',
  debug: 'dim',
  trace: 'dim',
};

/**
 * Formats a JSON log line for people: time, level, message, then the fields.
 * @returns the text with a trailing line break
 */
export function readableLog(line: string): string {
  const {
    level,
    time,
    pid: _pid,
    msg,
    err,
    ...fields
  } = JSON.parse(line) as Record<string, unknown>;
  const text = [
    `${shown(time).slice(11, 19)} ${shown(level).padEnd(5)} ${shown(msg)}`,
    ...Object.entries(fields).map(([name, value]) => `${name}=${shown(value)}`),
    ...errorText(err),
  ].join('  ');
  const style = STYLES[shown(level)];
  return `${style === undefined ? text : styleText(style, text)}\n`;
}

function shown(value: unknown): string {
  const text =
    typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return printable(truncate(text, LOGGED_CHARACTERS_MAX));
}

/** Formats an error as `message (CODE)`. Stack traces appear only in JSON logs. */
function errorText(error: unknown): readonly string[] {
  if (typeof error !== 'object' || error === null || !('message' in error))
    return [];
  return [
    `${shown(error.message)}${'code' in error ? ` (${shown(error.code)})` : ''}`,
  ];
}
