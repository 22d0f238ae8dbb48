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
import { nameCommands } from '../command-name.ts';
import { type PromptCommand, readCommand } from './prompt-commands.ts';

const HISTORY_MAX = 500;
const FIRST = 'ledger-mirror> ';
/** Matches the name of a question, optionally followed by options. */
const QUESTION = /^[a-z][a-z-]*(\s+--.*)?$/;
/** SQL that people type without `;`, because nothing can follow it. */
const LISTING = /^(?:show\s+tables|describe\s+[a-z_][\w.]*)$/i;
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
): QuestionValues & { readonly sql: string; readonly chart?: string | true } {
  const [, sql, given] = /^([a-z][a-z-]*)\s+(--.*)$/s.exec(typed) ?? [];
  if (sql === undefined || given === undefined) return { sql: typed };
  const { words, chart } = takeChart(wordsOf(given));
  const options = Object.fromEntries(
    QUESTION_PARAMETERS.map((name) => [name, { type: 'string' as const }]),
  );
  try {
    return {
      sql,
      ...(chart === undefined ? {} : { chart }),
      ...parseArgs({ args: words, options }).values,
    };
  } catch {
    throw new UsageError([
      `query ${sql}: ${JSON.stringify(given)} is not valid; give --since, ` +
        '--until, --month, --at, --party or --asset, each with a value, or --chart',
    ]);
  }
}

/** Takes `--chart` out of the options, because unlike the others it may have no value. */
function takeChart(given: readonly string[]): {
  readonly words: string[];
  readonly chart?: string | true;
} {
  const at = given.findIndex((word) => /^--chart(?:=|$)/.test(word));
  const word = given[at];
  if (word === undefined) return { words: [...given] };
  const [, value] = word.split('=');
  const next = given[at + 1];
  if (value !== undefined || next === undefined || next.startsWith('-'))
    return { words: given.toSpliced(at, 1), chart: value ?? true };
  return { words: given.toSpliced(at, 2), chart: next };
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
 * Draws the result of a statement as a chart.
 * @param figure the column to draw, or true for the usual one
 * @throws UsageError if the result has no such column
 */
export type DrawResult = (figure: string | true) => void;

/**
 * Runs statements until Ctrl-D, `exit`, `quit` or `\q`. If a statement fails, its error
 * is shown and the prompt returns.
 * @param answer runs a statement and shows its result; returns the function that draws
 *   this result as a chart
 */
export async function promptForSql(
  { history, help, stdin, stderr, signal }: PromptOptions,
  answer: (sql: string) => Promise<DrawResult>,
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
      'quit ends.\n',
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
  const report = (error: unknown): void => {
    stderr.write(`${nameCommands(describeError(error))}\n`);
  };
  /** Draws the result of the last statement that was answered. */
  let drawLast: DrawResult | undefined;
  const carryOut = async (
    command: Exclude<PromptCommand, { readonly kind: 'end' }>,
  ): Promise<void> => {
    if (command.kind === 'help') return void stderr.write(help);
    if (command.kind === 'sql') return void (await answer(command.sql));
    if (drawLast !== undefined) return drawLast(command.chart);
    throw new UsageError([
      'There is no result to draw yet: type a ready question or SQL first',
    ]);
  };
  ask(FIRST);
  for await (const line of lines) {
    const command = readLine(line, typed.length > 0);
    if (command instanceof UsageError) {
      report(command);
      ask(typed.length > 0 ? MORE : FIRST);
      continue;
    }
    if (command?.kind === 'end') break;
    if (command !== undefined) {
      known.push(line.trim());
      await carryOut(command).catch(report);
      ask(typed.length > 0 ? MORE : FIRST);
      continue;
    }
    typed.push(line);
    const statement = typed.join('\n').trim();
    const isComplete =
      statement.endsWith(';') ||
      QUESTION.test(statement) ||
      LISTING.test(statement);
    if (statement !== '' && !isComplete) {
      ask(MORE);
      continue;
    }
    typed = [];
    if (statement !== '') {
      known.push(statement.replaceAll(/\s+/g, ' '));
      const sql = statement.replace(/;$/, '');
      try {
        drawLast = await answer(sql);
      } catch (error) {
        report(error);
      }
    }
    ask(FIRST);
  }
  await mkdir(dirname(history), { recursive: true });
  await writeFile(history, `${known.slice(-HISTORY_MAX).join('\n')}\n`, {
    mode: 0o600,
  });
}

/**
 * Reads a line as a command, or returns what is wrong with it. In the middle of a
 * statement only `\` begins a command: any other line may be SQL.
 */
function readLine(
  line: string,
  isContinued: boolean,
): PromptCommand | UsageError | undefined {
  if (isContinued && !/^\s*\\/.test(line)) {
    if (!/^\s*(?:exit|quit|help)\s*;?\s*$/i.test(line)) return undefined;
    return new UsageError([
      String.raw`The statement above has not ended: end it with ;, discard it with ` +
        String.raw`Ctrl-C, or type \q to end the prompt`,
    ]);
  }
  try {
    return readCommand(line);
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
}
