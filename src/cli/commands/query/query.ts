/** `query`: SQL over the lake, or one of the ready questions. Asks the object store alone. */
import { open as openFile, rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { type Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { text as readText } from 'node:stream/consumers';
import { COMMAND } from '../../../core/own-name.ts';
import { openStore } from '../../../app/app.ts';
import { errorCode, UsageError } from '../../../core/errors.ts';
import { type Lake, type LakeOptions, openLake } from '../../../lake/query/lake.ts';
import { inquiry, READY_QUESTIONS } from '../../../lake/query/questions.ts';
import { completeIds, hasOneSided, KNOWN_PARTIES } from '../../../lake/query/short-ids.ts';
import { runQuery } from '../../../lake/query/query.ts';
import { scratchFolder } from '../../../lake/local/scratch.ts';
import { EXIT, type CommandContext, type CommandResult } from '../../context.ts';
import { requireMirror } from '../../mirror.ts';
import {
  type Asked,
  type QueryCommandOptions,
  readQueryOptions,
  readTyped,
  refuseTerminal,
} from './options.ts';
import { promptForSql } from './prompt.ts';
import { formatWritten } from '../../output/format.ts';
import { formatTable } from '../../output/table.ts';

export async function query(options: QueryCommandOptions, context: CommandContext): Promise<CommandResult> {
  if (options.list) return listQuestions();
  if (options.sql === undefined && process.stdin.isTTY) return converse(options, context);
  const given = options.sql ?? (await readText(process.stdin)).trim();
  if (given === '') {
    throw new UsageError([
      `query: give SQL, or the name of a ready question; '${COMMAND} query --list' shows them`,
    ]);
  }
  const asked = readQueryOptions(options, given, context.isJson);
  if (options.output === undefined) refuseTerminal(asked, context.stdout);
  const isOfParty = typeof asked.parameters?.party === 'string';
  const sql = isOfParty ? `${asked.sql}; ${KNOWN_PARTIES}` : asked.sql;
  await using lake = await open(context, { sql, range: asked.range });
  if (options.output === undefined) await answer(lake, asked, context, context.stdout as unknown as Writable);
  else {
    const rows = await answerInto(resolve(options.output), lake, asked, context);
    context.stderr.write(formatWritten(rows, options.output));
  }
  return { exitCode: EXIT.done };
}

async function open(context: CommandContext, wanted: Pick<LakeOptions, 'sql' | 'range'>): Promise<Lake> {
  requireMirror(context.config, context.config.objectStoreUrl, 'objects');
  await using stack = new AsyncDisposableStack();
  const objects = stack.use(await openStore(context));
  const lake = stack.use(
    await openLake({ objects, scratchDir: scratchDirOf(context), ...wanted }, context.signal),
  );
  const owned = stack.move();
  return { ...lake, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

function scratchDirOf({ config }: CommandContext): string {
  return join(config.dataDir, 'scratch');
}

/** @returns how many rows were written */
async function answer(lake: Lake, asked: Asked, context: CommandContext, output: Writable): Promise<bigint> {
  await using folder = await scratchFolder(scratchDirOf(context));
  const { sql, parameters: given, rows, note, ...options } = asked;
  const parameters = given && rows && (await completeIds({ parameters: given, rows }, lake.connection));
  const widthMax = context.stdout.columns;
  try {
    const all = {
      ...options,
      widthMax,
      folder: folder.path,
      ...(given && { parameters: parameters || given }),
    };
    const answered = await runQuery(lake, sql, all, output, context.signal);
    if (note !== undefined && asked.format === 'table' && (await hasOneSided(lake.connection)))
      context.stderr.write(`${note}\n`);
    return answered.rows;
  } catch (error) {
    // The reader has seen enough: `| head` closes the pipe.
    if (errorCode(error) !== 'EPIPE') throw error;
    return 0n;
  }
}

/** The file appears whole, or not at all. @throws UsageError where it cannot be made */
async function answerInto(path: string, lake: Lake, asked: Asked, context: CommandContext): Promise<bigint> {
  const part = `${path}.${process.pid}.part`;
  const handle = await openFile(part, 'wx').catch((error: unknown) => {
    throw new UsageError([
      `--output: cannot write ${path} (${errorCode(error)}); name a file in a folder that exists`,
    ]);
  });
  const file = handle.createWriteStream();
  try {
    const rows = await answer(lake, asked, context, file);
    file.end();
    await finished(file);
    await rename(part, path);
    return rows;
  } catch (error) {
    file.destroy();
    await rm(part, { force: true });
    throw error;
  }
}

/** One statement after the other over one moment, until the end of input. What is wrong with one is told, and the next asked for. */
async function converse(options: QueryCommandOptions, context: CommandContext): Promise<CommandResult> {
  await using lake = await open(context, {});
  const history = join(context.config.dataDir, 'query-history');
  const { stderr, signal } = context;
  const help = `${questionTable()}Tables: show tables;  Columns: describe entries;\n`;
  await promptForSql({ history, help, stdin: process.stdin, stderr, signal }, async (typed) => {
    const { sql, ...values } = readTyped(typed);
    const asked = readQueryOptions({ ...options, ...values }, sql, false);
    refuseTerminal(asked, context.stdout);
    await answer(lake, asked, context, context.stdout as unknown as Writable);
  });
  return { exitCode: EXIT.done };
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
  return {
    exitCode: EXIT.done,
    document: READY_QUESTIONS.map((question) => {
      const { name, title, parameters } = question;
      return { name, title, parameters, sql: inquiry(question).sql };
    }),
    text: questionTable(),
  };
}
