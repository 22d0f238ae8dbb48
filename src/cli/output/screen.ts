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

const HIDE_CURSOR = '\u001B[?25l';
const SHOW_CURSOR = '\u001B[?25h';
const CLEAR_BELOW = '\u001B[0J';
const COLUMNS_DEFAULT = 80;
const ROWS_DEFAULT = 24;

export class Screen implements Disposable {
  readonly #stream: TerminalStream;
  #lines: readonly string[] = [];
  #isCursorHidden = false;
  readonly #restore = (): void => this.#showCursor();

  constructor(stream: TerminalStream) {
    this.#stream = stream;
  }

  get columns(): number {
    return sizeOr(this.#stream.columns, COLUMNS_DEFAULT);
  }

  /** How many bottom lines there can be: at least one line of the window stays for what is above. */
  get linesMax(): number {
    return Math.max(1, sizeOr(this.#stream.rows, ROWS_DEFAULT) - 2);
  }

  /** Writes whole lines above the bottom ones. */
  write(text: string): void {
    this.#stream.write(`${this.#cleared()}${text}${this.#lines.map((line) => `${line}\n`).join('')}`);
  }

  /** Replaces the bottom lines. */
  show(lines: readonly string[]): void {
    const fitting = lines.slice(0, this.linesMax).map((line) => truncate(line, this.columns - 1));
    const hide = this.#isCursorHidden || fitting.length === 0 ? '' : HIDE_CURSOR;
    const text = `${hide}${this.#cleared()}${fitting.map((line) => `${line}\n`).join('')}`;
    this.#lines = fitting;
    if (hide !== '') {
      this.#isCursorHidden = true;
      // However the process ends, save a kill -9, the user's cursor comes back.
      process.once('exit', this.#restore);
    }
    if (text !== '') this.#stream.write(text);
  }

  /** Removes the bottom lines and gives the cursor back. The screen can be used again. */
  [Symbol.dispose](): void {
    this.show([]);
    this.#showCursor();
    process.removeListener('exit', this.#restore);
  }

  #cleared(): string {
    return this.#lines.length === 0 ? '' : `\u001B[${this.#lines.length}A\r${CLEAR_BELOW}`;
  }

  #showCursor(): void {
    if (!this.#isCursorHidden) return;
    this.#isCursorHidden = false;
    this.#stream.write(SHOW_CURSOR);
  }
}

/** Terminals that do not know their size say 0 or nothing. */
function sizeOr(size: number | undefined, fallback: number): number {
  return size === undefined || size <= 0 ? fallback : size;
}
