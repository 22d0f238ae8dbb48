/** A prompt for SQL: a statement may have several lines and ends with `;`, a question is one line that begins with its name. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { errorLine } from '../../../core/errors.ts';
import { nameCommands } from '../../typed.ts';

const HISTORY_MAX = 500;
const FIRST = 'ledger-mirror> ';
/** A name, and options behind it. */
const QUESTION = /^[a-z][a-z-]*(\s+--.*)?$/;
const MORE = '           ... ';

export interface PromptOptions {
  /** A file: one statement a line, the newest last. */
  readonly history: string;
  /** What `help` shows. */
  readonly help: string;
  readonly stdin: NodeJS.ReadableStream;
  readonly stderr: NodeJS.WritableStream;
  readonly signal: AbortSignal;
}

/** Ends with Ctrl-D, `exit` or `quit`. An error of one statement is told, and the next is asked for. */
export async function promptForSql(
  { history, help, stdin, stderr, signal }: PromptOptions,
  answer: (sql: string) => Promise<void>,
): Promise<void> {
  const known = await readHistory(history);
  using lines = createInterface({
    input: stdin,
    output: stderr,
    history: known.toReversed(),
    historySize: HISTORY_MAX,
    removeHistoryDuplicates: true,
  });
  signal.addEventListener('abort', () => lines.close(), { once: true });
  stderr.write('Type SQL that ends with ; or a ready question. help shows what there is, Ctrl-D ends.\n');
  // Input can end while a statement is answered, or before lines that were pasted are.
  let isOpen = true;
  lines.once('close', () => (isOpen = false));
  const ask = (prompt: string): void => {
    lines.setPrompt(prompt);
    if (isOpen) lines.prompt();
  };
  let typed: string[] = [];
  ask(FIRST);
  for await (const line of lines) {
    typed.push(line);
    const statement = typed.join('\n').trim();
    if (statement === 'exit' || statement === 'quit') break;
    const isComplete = statement.endsWith(';') || QUESTION.test(statement);
    if (statement !== '' && !isComplete) {
      ask(MORE);
      continue;
    }
    typed = [];
    if (statement === 'help') stderr.write(help);
    else if (statement !== '') {
      known.push(statement.replaceAll(/\s+/g, ' '));
      await answer(statement.replace(/;$/, '')).catch((error: unknown) => {
        stderr.write(`${nameCommands(errorLine(error))}\n`);
      });
    }
    ask(FIRST);
  }
  await writeHistory(history, known);
}

async function readHistory(path: string): Promise<string[]> {
  const text = await readFile(path, 'utf8').catch(() => '');
  return text.split('\n').filter((line) => line !== '');
}

async function writeHistory(path: string, statements: readonly string[]): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, `${statements.slice(-HISTORY_MAX).join('\n')}\n`, { mode: 0o600 });
}
