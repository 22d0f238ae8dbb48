/** A prompt for SQL: a statement may have several lines and ends with `;`, a question is its name. History is kept. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { errorLine } from '../../../core/errors.ts';

const HISTORY_MAX = 500;
const FIRST = 'ledger-mirror> ';
const MORE = '           ... ';

export interface PromptOptions {
  /** A file: one statement a line, the newest last. */
  readonly history: string;
  readonly stderr: NodeJS.WritableStream;
  readonly signal: AbortSignal;
}

/** Ends with Ctrl-D, `exit` or `quit`. An error of one statement is told, and the next is asked for. */
export async function promptForSql(
  { history, stderr, signal }: PromptOptions,
  answer: (sql: string) => Promise<void>,
): Promise<void> {
  const known = await readHistory(history);
  using lines = createInterface({
    input: process.stdin,
    output: stderr,
    history: known.toReversed(),
    historySize: HISTORY_MAX,
    removeHistoryDuplicates: true,
    prompt: FIRST,
  });
  signal.addEventListener('abort', () => lines.close(), { once: true });
  stderr.write(
    'SQL over the lake; end a statement with ;  Questions by name: top-parties. Ctrl-D ends it.\n',
  );
  let typed: string[] = [];
  lines.prompt();
  for await (const line of lines) {
    typed.push(line);
    const statement = typed.join('\n').trim();
    if (statement === 'exit' || statement === 'quit') break;
    const isComplete = statement.endsWith(';') || /^[a-z][a-z-]*$/.test(statement);
    if (statement !== '' && !isComplete) {
      lines.setPrompt(MORE);
      lines.prompt();
      continue;
    }
    typed = [];
    if (statement !== '') {
      known.push(statement.replaceAll(/\s+/g, ' '));
      await answer(statement.replace(/;$/, '')).catch((error: unknown) => {
        stderr.write(`${errorLine(error)}\n`);
      });
    }
    lines.setPrompt(FIRST);
    lines.prompt();
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
