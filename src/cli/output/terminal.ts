/** What a command writes to stderr: bars and readable logs on a terminal, JSON lines otherwise. */
import { createLog, type Log, type LogLevel } from '../../core/log.ts';
import { readableLog } from './log-lines.ts';
import { createProgress, type Progress } from './progress.ts';
import { Screen, type TerminalStream } from './screen.ts';

export interface TerminalOptions {
  /** stderr */
  readonly stream: TerminalStream & { readonly isTTY?: boolean };
  readonly level: LogLevel;
  /** No bars. */
  readonly isQuiet?: boolean;
}

export interface Terminal extends AsyncDisposable {
  readonly log: Log;
  readonly progress: Progress;
}

export function openTerminal(options: TerminalOptions): Terminal {
  const screen =
    options.stream.isTTY === true && options.isQuiet !== true ? new Screen(options.stream) : undefined;
  const destination =
    screen === undefined ? {} : { destination: { write: (line: string) => screen.write(readableLog(line)) } };
  const log = createLog(options.level, destination);
  const progress = createProgress({ screen, log });
  return { log, progress, [Symbol.asyncDispose]: () => progress[Symbol.asyncDispose]() };
}
