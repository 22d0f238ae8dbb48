/**
 * `query`: runs SQL over the lake, or one of the ready questions. It reads only the
 * object store.
 */
import { extname, join, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { openStore, scratchDirOf } from '../../app/data-dir.ts';
import { knownAssets } from '../../config/environment.ts';
import { didYouMean, findMeant } from '../../errors/did-you-mean.ts';
import { UsageError } from '../../errors/errors.ts';
import { scratchFolder } from '../../lake/local/scratch.ts';
import {
  type Lake,
  type LakeOptions,
  openLake,
} from '../../lake/query/lake.ts';
import { drawChart, type KeptResult } from '../../lake/query/query-chart.ts';
import {
  QUERY_FORMATS,
  type QueryFormat,
  runQuery,
} from '../../lake/query/query.ts';
import {
  completeIds,
  hasOneSided,
  inquiry,
  KNOWN_PARTIES,
  QUESTION_PARAMETERS,
  type QuestionValues,
  READY_QUESTIONS,
  type ReadyQuestion,
  readyQuestion,
  refuseCutIds,
} from '../../lake/query/questions.ts';
import { unitsById } from '../../ledger/assets.ts';
import type { CommandContext, CommandResult, Handler } from '../context.ts';
import { requireMirror } from '../mirror.ts';
import {
  formatWritten,
  outputProblems,
  unlessBrokenPipe,
  writeOutput,
} from '../output/destination.ts';
import { formatTable } from '../output/format.ts';
import { PROMPT_COMMANDS_HELP } from './prompt-commands.ts';
import { promptForSql, readTyped } from './query-prompt.ts';

interface QueryCommandOptions extends QuestionValues {
  /** The SQL; undefined if it is typed at a prompt or read from standard input. */
  readonly sql?: string | undefined;
  readonly list: boolean;
  /**
   * The output format. By default it is determined by the extension of `output`; without
   * an extension, it is a table.
   */
  readonly format?: QueryFormat;
  readonly output?: string | undefined;
  /**
   * Whether to draw the result as a chart, or the name of the column of amounts to draw.
   */
  readonly chart?: string | true | undefined;
  /** The time limit in seconds. */
  readonly timeout: number;
}
type Asked = ReturnType<typeof readOptions>;

/** A single word is treated as the name of a question. */
const NAME = /^[a-z][a-z-]*$/;

export const query: Handler<QueryCommandOptions> = async (options, context) => {
  if (options.list) return listQuestions();
  if (options.sql === undefined && process.stdin.isTTY)
    return converse(options, context);
  const given = options.sql ?? (await readText(process.stdin)).trim();
  if (given === '')
    throw new UsageError([
      `query: give SQL, or the name of a ready question; 'ledger-mirror query ` +
        `--list' shows them`,
    ]);
  const asked = readOptions(options, given, context);
  const { sql, range, parameters } = asked;
  const isOfParty = typeof parameters?.party === 'string';
  await using stack = new AsyncDisposableStack();
  const lake = await openOnly(context, stack, {
    sql: isOfParty ? `${sql}; ${KNOWN_PARTIES}` : sql,
    range,
  });
  const write = (output: Writable) => answer(lake, asked, context, output);
  const { output: file } = options;
  if (file === undefined) {
    // A reader such as `head` may close the pipe early.
    await write(context.stdout).catch(unlessBrokenPipe);
    return {};
  }
  const written = {
    rows: String(await writeOutput(resolve(file), context.signal, write)),
    file,
  };
  context.stderr.write(formatWritten(written));
  return { document: { written } };
};

/**
 * Determines the SQL, its parameters, its format and its time limit.
 * @throws UsageError with a line for each problem
 */
function readOptions(
  options: QueryCommandOptions,
  sql: string,
  { isJson, stdout }: CommandContext,
) {
  const { output, timeout } = options;
  const question = readyQuestion(sql);
  const refused = QUESTION_PARAMETERS.filter(
    (name) =>
      options[name] !== undefined &&
      question?.parameters.includes(name) !== true,
  );
  const flags = `--${refused.join(', --')}`;
  const ending = extname(output ?? '').slice(1);
  // A table is plain text, so no extension and `.txt` both mean a table.
  const byEnding = ['', 'txt'].includes(ending)
    ? 'table'
    : QUERY_FORMATS.find((known) => known === ending);
  const format = chooseFormat(options, byEnding, isJson);
  const problems = [
    format === undefined &&
      `--output: ${JSON.stringify(`.${ending}`)} names no format; use a name that ends in ` +
        '.csv, .json, .ndjson, or .parquet, or give --format',
    format === 'parquet' &&
      output === undefined &&
      stdout.isTTY === true &&
      '--format parquet: is not for a terminal; give --output FILE, or pipe it on',
    question === undefined && NAME.test(sql) && noQuestion(sql),
    refused.length > 0 &&
      (question === undefined
        ? `${flags}: only with a ready question; write it into the SQL instead, such ` +
          "as where vega_time >= '2026-03-01'"
        : refuseOptions(question, refused)),
    options.chart !== undefined &&
      (isJson || options.format !== undefined) &&
      '--chart: cannot go with --format or --json',
    ...outputProblems('--output', output),
  ].filter((problem) => problem !== false);
  if (problems.length > 0 || format === undefined)
    throw new UsageError(problems);
  if (question === undefined) refuseCutIds(sql);
  const asked: Partial<ReturnType<typeof inquiry>> =
    question === undefined ? {} : inquiry(question, options);
  return {
    sql,
    ...asked,
    format,
    figure: typeof options.chart === 'string' ? options.chart : undefined,
    timeoutMs: timeout * 1_000,
    note: question?.oneSided,
  };
}

function chooseFormat(
  { output, format, chart }: QueryCommandOptions,
  byEnding: QueryFormat | undefined,
  isJson: boolean,
): QueryFormat | undefined {
  if (isJson && output === undefined) return 'json';
  return chart === undefined ? (format ?? byEnding) : 'chart';
}

/**
 * Builds the message for options that a question does not take. It lists the options that
 * the question takes, and names the one to use in place of `--at`.
 */
function refuseOptions(
  { name, parameters }: ReadyQuestion,
  refused: readonly string[],
): string {
  const takes =
    parameters.length === 0
      ? 'it takes none'
      : `it takes --${parameters.join(', --')}`;
  const isUntil = refused.includes('at') && parameters.includes('until');
  const instead = isUntil ? '; for how it was at a time, give --until' : '';
  return `query ${name}: takes no --${refused.join(', --')}; ${takes}${instead}`;
}

function noQuestion(name: string): string {
  const names = READY_QUESTIONS.map((question) => question.name);
  return (
    `query: there is no question ${name}; the questions are ${names.join(', ')}` +
    didYouMean(findMeant(name, names))
  );
}

/** Opens only the lake and its store; the stack closes both. */
async function openOnly(
  context: CommandContext,
  stack: AsyncDisposableStack,
  wanted?: Partial<LakeOptions>,
) {
  requireMirror(context.config, context.config.objectStoreUrl, 'objects');
  const objects = stack.use(await openStore(context));
  const scratchDir = scratchDirOf(context.config);
  return stack.use(
    await openLake(
      {
        objects,
        scratchDir,
        assets: knownAssets(context.config),
        ...wanted,
      },
      context.signal,
    ),
  );
}

/**
 * Runs the query and writes its result.
 * @param keep receives the rows of a table or chart after the last of them
 * @returns the number of rows written
 */
async function answer(
  lake: Lake,
  asked: Asked,
  context: CommandContext,
  output: Writable,
  keep?: (result: KeptResult) => void,
): Promise<bigint> {
  await using folder = await scratchFolder(scratchDirOf(context.config));
  const {
    sql,
    parameters: given,
    rows,
    note,
    format,
    figure,
    timeoutMs,
  } = asked;
  const parameters =
    given && rows !== undefined
      ? await completeIds({ parameters: given, rows }, lake.connection)
      : {};
  const options = {
    format,
    figure,
    keep,
    timeoutMs,
    widthMax: context.stdout.columns,
    folder: folder.path,
    units: unitsById(knownAssets(context.config)),
    parameters,
  };
  const written = await runQuery(lake, sql, options, output, context.signal);
  // The note explains a limitation of the result that the reader must know about.
  if (
    note !== undefined &&
    format === 'table' &&
    (await hasOneSided(lake.connection))
  )
    context.stderr.write(`${note}\n`);
  return written;
}

/**
 * Runs one statement after another, all on one snapshot of the lake, until the input
 * ends. If a statement fails, its error is shown, and the prompt returns.
 */
async function converse(
  options: QueryCommandOptions,
  context: CommandContext,
): Promise<CommandResult> {
  const history = join(context.config.dataDir, 'query-history');
  const help = `${questionTable()}\n${PROMPT_COMMANDS_HELP}`;
  const prompt = {
    history,
    help,
    stdin: process.stdin,
    stderr: context.stderr,
    signal: context.signal,
  };
  await using stack = new AsyncDisposableStack();
  const lake = await openOnly(context, stack);
  await promptForSql(prompt, async (typed) => {
    const { sql, ...values } = readTyped(typed);
    const { format, ...others } = options;
    // The prompt always shows results on the terminal, regardless of --output. A question
    // that asks for a chart also overrides --format.
    const given = {
      ...others,
      ...values,
      ...(values.chart === undefined && format !== undefined && { format }),
      output: undefined,
    };
    const asked = readOptions(given, sql, { ...context, isJson: false });
    let kept: KeptResult | undefined;
    await answer(lake, asked, context, context.stdout, (result) => {
      kept = result;
    }).catch(unlessBrokenPipe);
    return (figure) => drawKept(kept, figure, context);
  });
  return {};
}

/** Draws a result that was shown before, without running its statement again. */
function drawKept(
  kept: KeptResult | undefined,
  figure: string | true,
  { config, stdout }: CommandContext,
): void {
  if (kept === undefined) return;
  const chart = drawChart(kept, {
    units: unitsById(knownAssets(config)),
    widthMax: stdout.columns,
    figure: figure === true ? undefined : figure,
  });
  stdout.write(chart);
}

function questionTable(): string {
  const rows = READY_QUESTIONS.map(({ name, title, parameters }) => [
    name,
    title,
    parameters.map((parameter) => `--${parameter}`).join(' '),
  ]);
  return formatTable(['name', 'question', 'options'], rows);
}

function listQuestions(): CommandResult {
  const document = READY_QUESTIONS.map((question) => {
    const { name, title, parameters } = question;
    const { sql } = inquiry(question, question.required);
    return { name, title, parameters, sql };
  });
  return { document, text: questionTable() };
}
