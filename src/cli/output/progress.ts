/**
 * Live progress of a command: a line a task with bar, count, rate and time left on a terminal, log lines
 * otherwise. Both are driven by a timer, so that a silent stretch of work still shows that it lives.
 */
import { createLog, type Log, type LogLevel } from '../../core/log.ts';
import { type ProgressLine, RateMeter } from '../../runs/progress.ts';
import { formatCount, formatDuration, formatQuantity, formatShare, printable, truncate } from './format.ts';
import { readableLog } from './log-lines.ts';

/** What one followed run reports: a task for each line; a line that is reported no more has ended. */
export interface RunView {
  /** @param lines none where nothing is known at the moment: what was shown stays */
  show(lines: readonly ProgressLine[]): void;
  /** The run is over, and so is every line of it; what is shown later is nothing. */
  finish(outcome: string): void;
}

export interface Progress extends Disposable {
  openView(): RunView;
}

/** What a screen needs of stderr. */
interface TerminalStream {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}
type Screen = ReturnType<typeof openScreen>;

interface Task {
  /** The view that it is a line of. */
  readonly view: object;
  readonly startedMs: number;
  readonly rate: RateMeter;
  latest: ProgressLine;
}

const REDRAW_MS = 120;
/** No run is silent for longer than this. */
const LOG_EVERY_MS = 10_000;
/** Tasks that a tick logs at most; more would bury everything else. */
const LOGGED_TASKS_MAX = 20;
const BAR_CHARACTERS = 20;
const CLEAR_BELOW = '\u001B[0J';
const COLUMNS_DEFAULT = 80;
const ROWS_DEFAULT = 24;
const SPINNER = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/**
 * What a command writes to `stream`: bars and readable logs on a terminal, JSON lines otherwise; no bars where it is to
 * be quiet. @returns `progress` to be disposed of, which gives the terminal back; `notices`, a log of what its user
 * must be told, which a terminal shows whatever the level is
 */
export function openTerminal(
  stream: TerminalStream,
  level: LogLevel,
  isQuiet = false,
): { log: Log; notices: Log; progress: Progress } {
  const screen = stream.isTTY === true && !isQuiet ? openScreen(stream) : undefined;
  const destination = screen && { write: (line: string) => screen.write(readableLog(line)) };
  const log = createLog(level, destination);
  const notices = screen === undefined ? log : createLog('info', destination);
  return { log, notices, progress: createProgress(log, screen) };
}

/**
 * @param screen the terminal; absent where stderr is none
 * @returns a progress that shows until it is disposed of; unfinished tasks then vanish
 */
export function createProgress(log: Log, screen?: Screen): Progress {
  const tasks = new Set<Task>();
  const tick = screen === undefined ? () => logTasks([...tasks], log) : () => drawTasks([...tasks], screen);
  let timer: NodeJS.Timeout | undefined;
  const start = (view: object, latest: ProgressLine): Task => {
    const task = { view, startedMs: performance.now(), rate: new RateMeter(), latest };
    tasks.add(task);
    timer ??= setInterval(tick, screen === undefined ? LOG_EVERY_MS : REDRAW_MS).unref();
    if (screen === undefined) log.info({ task: latest.label }, 'Started');
    return task;
  };
  const find = (view: object, label: string) =>
    [...tasks].find((task) => task.view === view && task.latest.label === label);
  /** What is a part of another ends without a word. */
  const finishAllBut = (view: object, kept: readonly ProgressLine[], outcome?: string) => {
    for (const task of tasks) {
      if (task.view !== view || kept.some(({ label }) => label === task.latest.label)) continue;
      tasks.delete(task);
      if (task.latest.isPart === true) continue;
      if (screen === undefined) log.info({ ...measure(task), outcome }, 'Finished');
      else screen.write(describeEnd(task, outcome));
    }
  };
  return {
    openView: () => {
      const view = {};
      let isOver = false;
      return {
        show: (lines) => {
          if (lines.length === 0 || isOver) return;
          finishAllBut(view, lines);
          for (const line of lines) {
            const task = find(view, line.label) ?? start(view, line);
            task.latest = line;
            task.rate.add(BigInt(line.done), performance.now());
          }
        },
        finish: (outcome) => {
          isOver = true;
          finishAllBut(view, [], outcome);
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

/** The task's state, as fields of a log line; the time left where the present rate tells it. */
function measure({ latest: { label, done, total, unit, note }, startedMs, rate: { perSecond } }: Task) {
  const left = Number(BigInt(total ?? done) - BigInt(done));
  const leftMs = perSecond > 0 && left > 0 ? Math.round((left / perSecond) * 1000) : undefined;
  const elapsedMs = Math.round(performance.now() - startedMs);
  const task = printable(label);
  return { task, done, total, unit, note, perSecond: Math.round(perSecond), elapsedMs, leftMs };
}

/** A task of a run that goes on is done; the last ones end as their run does. */
function describeEnd(ended: Task, outcome = 'complete'): string {
  const { task, done, unit, elapsedMs } = measure(ended);
  const told = outcome === 'complete' ? '' : `  ${printable(outcome)}`;
  return `${told === '' ? '✓' : '!'} ${task}  ${formatQuantity(done, unit)} in ${formatDuration(elapsedMs)}${told}\n`;
}

function drawTasks(tasks: readonly Task[], screen: Screen): void {
  const room = screen.linesMax();
  const shown = tasks.slice(0, tasks.length > room ? room - 1 : room).map(measure);
  const labelWidth = Math.max(0, ...shown.map(({ task }) => task.length));
  const lines = shown.map((state) => liveLine(state, labelWidth));
  if (shown.length < tasks.length) lines.push(`… and ${formatCount(tasks.length - shown.length)} more`);
  screen.show(lines);
}

function liveLine(state: ReturnType<typeof measure>, labelWidth: number): string {
  const { task, done, total, unit, note, perSecond, elapsedMs, leftMs } = state;
  const spinner = SPINNER[Math.floor(elapsedMs / REDRAW_MS) % SPINNER.length] ?? '';
  const parts = [`${spinner} ${task.padEnd(labelWidth)}`];
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

function logTasks(tasks: readonly Task[], log: Log): void {
  for (const task of tasks.slice(0, LOGGED_TASKS_MAX)) log.info(measure(task), 'Progress');
  const left = tasks.length - LOGGED_TASKS_MAX;
  if (left > 0) log.info({ tasks: left }, 'More tasks in progress');
}

/**
 * The bottom lines of a terminal: they are redrawn in place, and everything else is written above them.
 * Logs and progress share one screen, so that neither tears the other apart.
 * @returns a screen; disposed of, it removes the bottom lines, and can be used again
 */
function openScreen(stream: TerminalStream) {
  let lines: readonly string[] = [];
  const draw = (above: string, below: readonly string[]) => {
    const clear = lines.length === 0 ? '' : `\u001B[${lines.length}A\r${CLEAR_BELOW}`;
    lines = below;
    if (clear !== '' || above !== '' || below.length > 0) stream.write(`${clear}${above}${below.join('')}`);
  };
  // Terminals that do not know their size say 0 or nothing.
  const linesMax = () => Math.max(1, (stream.rows || ROWS_DEFAULT) - 2);
  return {
    /** How many bottom lines there can be: at least one line of the window stays for what is above. */
    linesMax,
    /** Writes whole lines above the bottom ones. */
    write: (text: string) => draw(text, lines),
    show: (shown: readonly string[]) => {
      const columns = (stream.columns || COLUMNS_DEFAULT) - 1;
      const fitting = shown.slice(0, linesMax()).map((line) => `${truncate(line, columns)}\n`);
      draw('', fitting);
    },
    [Symbol.dispose]: () => draw('', []),
  };
}
