/** `query`: SQL over the lake, or one of the ready questions. Asks the object store alone. */
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { openStore } from '../../app/app.ts';
import { errorCode, UsageError } from '../../core/errors.ts';
import { openLake } from '../../lake/lake.ts';
import {
  type Inquiry,
  inquiry,
  READY_QUESTIONS,
  readyQuestion,
  type QuestionValues,
} from '../../lake/questions.ts';
import { runQuery } from '../../lake/query.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';
import { formatTable } from '../table.ts';

export interface QueryCommandOptions {
  readonly sql: string | undefined;
  readonly list: boolean;
  readonly format: string;
  readonly timeout: string;
  readonly since?: string;
  readonly until?: string;
  readonly party?: string;
  readonly asset?: string;
}

const FORMATS = ['table', 'csv', 'json'] as const;
const TIMEOUT_SECONDS_MAX = 86_400;

export async function query(options: QueryCommandOptions, context: CommandContext): Promise<CommandResult> {
  if (options.list) return listQuestions();
  const { sql, range, format, timeoutMs, parameters } = parse(options, context);
  await using objects = await openStore(context);
  const scratchDir = join(context.config.dataDir, 'scratch');
  await using lake = await openLake({ objects, scratchDir, sql, range }, context.signal);
  const output = context.stdout as unknown as Writable;
  const widthMax = context.stdout.columns;
  try {
    await runQuery(
      lake,
      sql,
      { format, timeoutMs, widthMax, ...(parameters && { parameters }) },
      output,
      context.signal,
    );
    const note = readyQuestion(options.sql ?? '')?.oneSided;
    if (note !== undefined && format === 'table') context.stderr.write(`${note}\n`);
  } catch (error) {
    // The reader has seen enough: `| head` closes the pipe.
    if (errorCode(error) !== 'EPIPE') throw error;
  }
  return { exitCode: EXIT.done };
}

function listQuestions(): CommandResult {
  const rows = READY_QUESTIONS.map(({ name, title, parameters }) => [
    name,
    title,
    parameters.map((parameter) => `--${parameter}`).join(' '),
  ]);
  return {
    exitCode: EXIT.done,
    document: READY_QUESTIONS.map((question) => {
      const { name, title, parameters } = question;
      return { name, title, parameters, sql: inquiry(question).sql };
    }),
    text: formatTable(['name', 'question', 'options'], rows),
  };
}

interface Asked extends Pick<Inquiry, 'sql'>, Partial<Pick<Inquiry, 'range' | 'parameters'>> {
  readonly format: (typeof FORMATS)[number];
  readonly timeoutMs: number;
}

function parse(options: QueryCommandOptions, context: CommandContext): Asked {
  const problems: string[] = [];
  const format = context.isJson ? 'json' : FORMATS.find((known) => known === options.format);
  if (format === undefined)
    problems.push(`--format: ${JSON.stringify(options.format)} is not accepted; give table, csv or json`);
  const seconds = /^\d{1,5}$/.test(options.timeout) ? Number(options.timeout) : 0;
  if (seconds < 1 || seconds > TIMEOUT_SECONDS_MAX) {
    problems.push(
      `--timeout: ${JSON.stringify(options.timeout)} is not accepted; give 1 to ${TIMEOUT_SECONDS_MAX} seconds`,
    );
  }
  const question = options.sql === undefined ? undefined : readyQuestion(options.sql);
  const values: QuestionValues = {
    ...(options.since === undefined ? {} : { since: options.since }),
    ...(options.until === undefined ? {} : { until: options.until }),
    ...(options.party === undefined ? {} : { party: options.party }),
    ...(options.asset === undefined ? {} : { asset: options.asset }),
  };
  const refused = Object.keys(values).filter(
    (name) => !(question?.parameters as readonly string[] | undefined)?.includes(name),
  );
  if (question !== undefined && refused.length > 0) {
    problems.push(
      `query ${question.name}: takes no --${refused.join(', --')}; 'ledger-mirror query --list' says what it takes`,
    );
  }
  if (question === undefined && refused.length > 0)
    problems.push(`--${refused.join(', --')}: only with a ready question; write it into the SQL`);
  if (options.sql === undefined)
    problems.push(
      "query: give SQL, or the name of a ready question; 'ledger-mirror query --list' shows them",
    );
  if (problems.length > 0 || options.sql === undefined || format === undefined)
    throw new UsageError(problems);
  const asked = question === undefined ? { sql: options.sql } : inquiry(question, values);
  return { ...asked, format, timeoutMs: seconds * 1_000 };
}
