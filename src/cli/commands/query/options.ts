/** What `query` was asked for: SQL or a ready question, its format and where it goes. All problems at once. */
import { extname } from 'node:path';
import { parseArgs } from 'node:util';
import { UsageError } from '../../../core/errors.ts';
import { QUERY_FORMATS, type QueryFormat } from '../../../lake/query/query.ts';
import {
  type Inquiry,
  inquiry,
  type QuestionParameter,
  type QuestionValues,
  READY_QUESTIONS,
  type ReadyQuestion,
  readyQuestion,
  refuseCutIds,
} from '../../../lake/query/questions.ts';
import { outputProblems } from '../../output/destination.ts';

export interface QueryCommandOptions {
  /** Absent: typed at a prompt, or read from standard input. */
  readonly sql: string | undefined;
  readonly list: boolean;
  /** Absent: by the ending of `output`, otherwise a table. */
  readonly format?: string;
  readonly output?: string;
  /** In seconds. */
  readonly timeout: number;
  readonly since?: string;
  readonly until?: string;
  readonly party?: string;
  readonly asset?: string;
}

export interface Asked extends Pick<Inquiry, 'sql'>, Partial<Pick<Inquiry, 'range' | 'parameters' | 'rows'>> {
  readonly format: QueryFormat;
  readonly timeoutMs: number;
  /** What a reader must know of the answer; undefined where there is nothing. */
  readonly note: string | undefined;
}

const VALUES = ['since', 'until', 'party', 'asset'] as const satisfies QuestionParameter[];
/** A word alone is meant as the name of a question. */
const NAME = /^[a-z][a-z-]*$/;
const listWords = (words: readonly string[], type: 'conjunction' | 'disjunction'): string =>
  new Intl.ListFormat('en', { type }).format(words);

/** @throws UsageError with a line for each problem */
export function readQueryOptions(options: QueryCommandOptions, sql: string, isJson: boolean): Asked {
  const { output, timeout } = options;
  const question = readyQuestion(sql);
  const given = VALUES.filter((name) => options[name] !== undefined);
  const format = isJson && output === undefined ? 'json' : formatOf(options);
  const problems = [
    ...(typeof format === 'string' ? [] : [format.problem]),
    ...outputProblems('--output', output),
    ...questionProblems(question, sql, given),
  ];
  if (problems.length > 0 || typeof format !== 'string') throw new UsageError(problems);
  if (question === undefined) refuseCutIds(sql);
  const values: QuestionValues = Object.fromEntries(given.map((name) => [name, options[name]]));
  const asked = question === undefined ? { sql } : inquiry(question, values);
  return { ...asked, format, timeoutMs: timeout * 1_000, note: question?.oneSided };
}

/**
 * What is typed at the prompt: SQL, or a question with its options as on the command line.
 * @throws UsageError where an option is none of a question's
 */
export function readTyped(typed: string): QuestionValues & { readonly sql: string } {
  const [, sql, given] = /^([a-z][a-z-]*)\s+(--.*)$/s.exec(typed) ?? [];
  if (sql === undefined || given === undefined) return { sql: typed };
  const options = Object.fromEntries(VALUES.map((name) => [name, { type: 'string' as const }]));
  try {
    return { sql, ...parseArgs({ args: given.trim().split(/\s+/), options }).values };
  } catch {
    throw new UsageError([
      `query ${sql}: ${JSON.stringify(given)} is not understood; give --since, --until, --party or --asset, each with a value`,
    ]);
  }
}

/** @throws UsageError where bytes that are no text would go to a terminal */
export function refuseTerminal(
  { format }: Pick<Asked, 'format'>,
  stdout: { readonly isTTY?: boolean },
): void {
  if (format === 'parquet' && stdout.isTTY === true)
    throw new UsageError(['--format parquet: is not for a terminal; give --output FILE, or pipe it on']);
}

function formatOf({ format, output = '' }: QueryCommandOptions): QueryFormat | { readonly problem: string } {
  const ending = extname(output).slice(1);
  // A table is text.
  const wanted = format ?? (['', 'txt'].includes(ending) ? 'table' : ending);
  const found = QUERY_FORMATS.find((known) => known === wanted);
  if (found !== undefined) return found;
  const endings = QUERY_FORMATS.slice(1).map((known) => `.${known}`);
  return {
    problem:
      format === undefined
        ? `--output: ${JSON.stringify(`.${ending}`)} tells no format; end the name in ${listWords(endings, 'disjunction')}, or give --format`
        : `--format: ${JSON.stringify(format)} is not accepted; give ${listWords(QUERY_FORMATS, 'disjunction')}`,
  };
}

function questionProblems(
  question: ReadyQuestion | undefined,
  sql: string,
  given: readonly QuestionParameter[],
): readonly string[] {
  const refused = given.filter((name) => question?.parameters.includes(name) !== true);
  const names = READY_QUESTIONS.map(({ name }) => name);
  const unknown = `query: there is no question ${sql}; there are ${listWords(names, 'conjunction')}`;
  const flags = `--${refused.join(', --')}`;
  const misplaced =
    question === undefined
      ? `${flags}: only with a ready question; write it into the SQL`
      : `query ${question.name}: takes no ${flags}; 'ledger-mirror query --list' says what it takes`;
  return [
    ...(question === undefined && NAME.test(sql) ? [unknown] : []),
    ...(refused.length > 0 ? [misplaced] : []),
  ];
}
