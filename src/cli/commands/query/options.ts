/** What `query` was asked for: SQL or a ready question, its format and where it goes. All problems at once. */
import { extname } from 'node:path';
import { UsageError } from '../../../core/errors.ts';
import { QUERY_FORMATS, type QueryFormat } from '../../../lake/query/query.ts';
import {
  type Inquiry,
  inquiry,
  type QuestionValues,
  READY_QUESTIONS,
  type ReadyQuestion,
  readyQuestion,
} from '../../../lake/query/questions.ts';
import { outputProblem } from '../../output/destination.ts';
import { refuseCutIds } from '../../../lake/query/short-ids.ts';

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

/** Endings of names that say no format: a table is text. */
const ENDINGS: ReadonlyMap<string, QueryFormat> = new Map([
  ['', 'table'],
  ['txt', 'table'],
]);
/** A word alone is meant as the name of a question. */
const NAME = /^[a-z][a-z-]*$/;

/** @throws UsageError with a line for each problem */
export function readQueryOptions(options: QueryCommandOptions, sql: string, isJson: boolean): Asked {
  const problems: string[] = [];
  const { output } = options;
  const format = isJson && output === undefined ? 'json' : formatOf(options, problems);
  const unwritable = outputProblem('--output', output);
  if (unwritable !== undefined) problems.push(unwritable);
  const question = readyQuestion(sql);
  if (question === undefined && NAME.test(sql)) problems.push(noQuestion(sql));
  const values = valuesOf(options);
  refuseOptions(question, values, problems);
  if (problems.length > 0) throw new UsageError(problems);
  if (question === undefined) refuseCutIds(sql);
  const asked = question === undefined ? { sql } : inquiry(question, values);
  return { ...asked, format, timeoutMs: options.timeout * 1_000, note: question?.oneSided };
}

/**
 * What is typed at the prompt: SQL, or a question with its options as on the command line.
 * @throws UsageError where an option is none of a question's
 */
export function readTyped(typed: string): QuestionValues & { readonly sql: string } {
  const [, name = '', given = ''] = /^([a-z][a-z-]*)\s+(--.*)$/s.exec(typed) ?? [];
  if (name === '') return { sql: typed };
  const options = [...given.matchAll(/--(since|until|party|asset)[\s=]+(\S+)\s*/gy)];
  const rest = given.slice(options.reduce((read, [text]) => read + text.length, 0));
  if (rest === '')
    return { sql: name, ...Object.fromEntries(options.map(([, option, value]) => [option, value])) };
  throw new UsageError([
    `query ${name}: ${JSON.stringify(rest)} is not understood; give --since, --until, --party or --asset, each with a value`,
  ]);
}

/** @throws UsageError where bytes that are no text would go to a terminal */
export function refuseTerminal(
  { format }: Pick<Asked, 'format'>,
  stdout: { readonly isTTY?: boolean },
): void {
  if (format === 'parquet' && stdout.isTTY === true)
    throw new UsageError(['--format parquet: is not for a terminal; give --output FILE, or pipe it on']);
}

function formatOf({ format, output }: QueryCommandOptions, problems: string[]): QueryFormat {
  const ending = output === undefined ? '' : extname(output).slice(1);
  const wanted = format ?? ENDINGS.get(ending) ?? ending;
  const found = QUERY_FORMATS.find((known) => known === wanted);
  if (found !== undefined) return found;
  const either = new Intl.ListFormat('en', { type: 'disjunction' });
  problems.push(
    format === undefined
      ? `--output: ${JSON.stringify(`.${ending}`)} tells no format; end the name in ${either.format(QUERY_FORMATS.slice(1).map((known) => `.${known}`))}, or give --format`
      : `--format: ${JSON.stringify(format)} is not accepted; give ${either.format(QUERY_FORMATS)}`,
  );
  return 'table';
}

function noQuestion(name: string): string {
  const names = READY_QUESTIONS.map((question) => question.name);
  return `query: there is no question ${name}; there are ${new Intl.ListFormat('en').format(names)}`;
}

function valuesOf({ since, until, party, asset }: QueryCommandOptions): QuestionValues {
  const given = Object.entries({ since, until, party, asset }).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as QuestionValues;
}

function refuseOptions(
  question: ReadyQuestion | undefined,
  values: QuestionValues,
  problems: string[],
): void {
  const taken: readonly string[] = question?.parameters ?? [];
  const refused = Object.keys(values).filter((name) => !taken.includes(name));
  if (refused.length === 0) return;
  problems.push(
    question === undefined
      ? `--${refused.join(', --')}: only with a ready question; write it into the SQL`
      : `query ${question.name}: takes no --${refused.join(', --')}; 'ledger-mirror query --list' says what it takes`,
  );
}
