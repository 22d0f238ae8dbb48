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
  readonly #showCursor = (): void => void this.#stream.write(SHOW_CURSOR);

  constructor(stream: TerminalStream) {
    this.#stream = stream;
  }

  /** How many bottom lines there can be: at least one line of the window stays for what is above. */
  get linesMax(): number {
    // Terminals that do not know their size say 0 or nothing.
    return Math.max(1, (this.#stream.rows || ROWS_DEFAULT) - 2);
  }

  /** Writes whole lines above the bottom ones. */
  write(text: string): void {
    this.#draw(text, this.#lines);
  }

  /** Replaces the bottom lines. */
  show(lines: readonly string[]): void {
    if (lines.length > 0 && !this.#isCursorHidden) {
      this.#isCursorHidden = true;
      this.#stream.write(HIDE_CURSOR);
      // However the process ends, save a kill -9, the user's cursor comes back.
      process.once('exit', this.#showCursor);
    }
    const columns = (this.#stream.columns || COLUMNS_DEFAULT) - 1;
    this.#draw(
      '',
      lines.slice(0, this.linesMax).map((line) => `${truncate(line, columns)}\n`),
    );
  }

  /** Removes the bottom lines and gives the cursor back. The screen can be used again. */
  [Symbol.dispose](): void {
    this.#draw('', []);
    if (this.#isCursorHidden) this.#showCursor();
    this.#isCursorHidden = false;
    process.removeListener('exit', this.#showCursor);
  }

  #draw(above: string, below: readonly string[]): void {
    const clear = this.#lines.length === 0 ? '' : `\u001B[${this.#lines.length}A\r${CLEAR_BELOW}`;
    this.#lines = below;
    if (clear !== '' || above !== '' || below.length > 0)
      this.#stream.write(`${clear}${above}${below.join('')}`);
  }
}
