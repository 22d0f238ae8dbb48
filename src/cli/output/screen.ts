/**
 * The bottom lines of a terminal: they are redrawn in place, and everything else is written above them.
 * Logs and progress share one screen, so that neither tears the other apart.
 */
import { truncate } from './format.ts';

/** What a screen needs of stderr. */
export interface TerminalStream {
  write(text: string): unknown;
  readonly columns?: number;
  readonly rows?: number;
}

export interface Screen extends Disposable {
  /** How many bottom lines there can be: at least one line of the window stays for what is above. */
  readonly linesMax: () => number;
  /** Writes whole lines above the bottom ones. */
  readonly write: (text: string) => void;
  /** Replaces the bottom lines. */
  readonly show: (lines: readonly string[]) => void;
}

const CLEAR_BELOW = '\u001B[0J';
const COLUMNS_DEFAULT = 80;
const ROWS_DEFAULT = 24;

/** @returns a screen; disposed of, it removes the bottom lines, and can be used again */
export function openScreen(stream: TerminalStream): Screen {
  let lines: readonly string[] = [];
  const draw = (above: string, below: readonly string[]) => {
    const clear = lines.length === 0 ? '' : `\u001B[${lines.length}A\r${CLEAR_BELOW}`;
    lines = below;
    if (clear !== '' || above !== '' || below.length > 0) stream.write(`${clear}${above}${below.join('')}`);
  };
  // Terminals that do not know their size say 0 or nothing.
  const linesMax = () => Math.max(1, (stream.rows || ROWS_DEFAULT) - 2);
  return {
    linesMax,
    write: (text) => draw(text, lines),
    show: (shown) => {
      const columns = (stream.columns || COLUMNS_DEFAULT) - 1;
      const fitting = shown.slice(0, linesMax()).map((line) => `${truncate(line, columns)}\n`);
      draw('', fitting);
    },
    [Symbol.dispose]: () => draw('', []),
  };
}
