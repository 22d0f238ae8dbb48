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

/** @returns `progress` to be disposed of, which gives the terminal back */
export function openTerminal(options: TerminalOptions): { log: Log; progress: Progress } {
  const screen =
    options.stream.isTTY === true && options.isQuiet !== true ? new Screen(options.stream) : undefined;
  const destination =
    screen === undefined ? {} : { destination: { write: (line: string) => screen.write(readableLog(line)) } };
  const log = createLog(options.level, destination);
  return { log, progress: createProgress({ screen, log }) };
}
