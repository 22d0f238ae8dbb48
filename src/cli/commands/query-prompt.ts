/**
 * A prompt for SQL. A statement may span several lines and ends with `;`. A ready
 * question is a single line that starts with its name.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { parseArgs } from 'node:util';
import { errorLine, UsageError } from '../../errors/errors.ts';
import {
  QUESTION_PARAMETERS,
  type QuestionValues,
} from '../../lake/query/questions.ts';
import type { CommandContext } from '../context.ts';
import { nameCommands } from '../typed.ts';

const HISTORY_MAX = 500;
const FIRST = 'ledger-mirror> ';
/** Matches the name of a question, optionally followed by options. */
const QUESTION = /^[a-z][a-z-]*(\s+--.*)?$/;
const MORE = '           ... ';

interface PromptOptions extends Pick<CommandContext, 'stderr' | 'signal'> {
  /** The history file: one statement per line, the newest last. */
  readonly history: string;
  /** The text that `help` shows. */
  readonly help: string;
  readonly stdin: NodeJS.ReadableStream;
}

/**
 * Parses what was typed at the prompt: SQL, or a question with its options as on the
 * command line.
 * @throws UsageError if an option is unknown or its value is missing
 */
export function readTyped(
  typed: string,
): QuestionValues & { readonly sql: string } {
  const [, sql, given] = /^([a-z][a-z-]*)\s+(--.*)$/s.exec(typed) ?? [];
  if (sql === undefined || given === undefined) return { sql: typed };
  const options = Object.fromEntries(
    QUESTION_PARAMETERS.map((name) => [name, { type: 'string' as const }]),
  );
  try {
    return {
      sql,
      ...parseArgs({ args: wordsOf(given), options }).values,
    };
  } catch {
    throw new UsageError([
      `query ${sql}: ${JSON.stringify(given)} is not valid; give --since, ` +
        '--until, --month, --at, --party or --asset, each with a value',
    ]);
  }
}

/**
 * Splits text into words as a shell does. A value may begin with a dash, as in `--since
 * -30d`.
 */
function wordsOf(given: string): string[] {
  const words = given.match(/(?:'[^']*'|"[^"]*"|\S)+/g) ?? [];
  const plain = words.map((word) =>
    word.replaceAll(/'([^']*)'|"([^"]*)"/g, '$1$2'),
  );
  return plain
    .join('\0')
    .replaceAll(/(^|\0)(--[a-z]+)\0(?=-\d)/g, '$1$2=')
    .split('\0');
}

/**
 * Formats an error. An SQL error keeps all its lines: the message, and a marker that
 * points to the position of the error.
 */
function describeError(error: unknown): string {
  return error instanceof UsageError
    ? error.problems.join('\n')
    : errorLine(error);
}

/**
 * Runs statements until Ctrl-D, `exit` or `quit`. If a statement fails, its error is
 * shown and the prompt returns.
 */
export async function promptForSql(
  { history, help, stdin, stderr, signal }: PromptOptions,
  answer: (sql: string) => Promise<void>,
): Promise<void> {
  const kept = await readFile(history, 'utf8').catch(() => '');
  const known = kept.split('\n').filter((line) => line !== '');
  using lines = createInterface({
    input: stdin,
    output: stderr,
    history: known.toReversed(),
    historySize: HISTORY_MAX,
    removeHistoryDuplicates: true,
  });
  signal.addEventListener('abort', () => lines.close(), { once: true });
  stderr.write(
    'Type SQL that ends with ; or a ready question. help shows what there is, ' +
      'Ctrl-D ends.\n',
  );
  // The input may end while a statement is still running, or while pasted lines are still
  // waiting.
  let isOpen = true;
  lines.once('close', () => {
    isOpen = false;
  });
  const ask = (prompt: string): void => {
    lines.setPrompt(prompt);
    if (isOpen) lines.prompt();
  };
  let typed: string[] = [];
  lines.on('SIGINT', () => {
    // Ctrl-C discards a half-typed statement; at an empty prompt it ends the session.
    if (typed.length === 0 && lines.line === '') return lines.close();
    typed = [];
    stderr.write('\n');
    lines.write(null, { ctrl: true, name: 'e' });
    lines.write(null, { ctrl: true, name: 'u' });
    ask(FIRST);
  });
  ask(FIRST);
  for await (const line of lines) {
    typed.push(line);
    const statement = typed.join('\n').trim();
    if (/^(?:exit|quit)\s*;?$/.test(statement)) break;
    const isComplete = statement.endsWith(';') || QUESTION.test(statement);
    if (statement !== '' && !isComplete) {
      ask(MORE);
      continue;
    }
    typed = [];
    if (/^help\s*;?$/.test(statement)) stderr.write(help);
    else if (statement !== '') {
      known.push(statement.replaceAll(/\s+/g, ' '));
      await answer(statement.replace(/;$/, '')).catch((error: unknown) => {
        stderr.write(`${nameCommands(describeError(error))}\n`);
      });
    }
    ask(FIRST);
  }
  await mkdir(dirname(history), { recursive: true });
  await writeFile(history, `${known.slice(-HISTORY_MAX).join('\n')}\n`, {
    mode: 0o600,
  });
}
