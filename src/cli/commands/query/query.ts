/** `query`: SQL over the lake, or one of the ready questions. Asks the object store alone. */
import { join, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { openStore, scratchDirOf } from '../../../app/data-dir.ts';
import { UsageError } from '../../../core/errors.ts';
import { type Lake, type LakeOptions, openLake } from '../../../lake/query/lake.ts';
import {
  completeIds,
  hasOneSided,
  inquiry,
  KNOWN_PARTIES,
  READY_QUESTIONS,
} from '../../../lake/query/questions.ts';

import { runQuery } from '../../../lake/query/query.ts';
import { scratchFolder } from '../../../lake/local/scratch.ts';
import type { CommandContext, CommandResult, Handler } from '../../context.ts';
import { requireMirror } from '../../mirror.ts';
import {
  type Asked,
  type QueryCommandOptions,
  readQueryOptions,
  readTyped,
  refuseTerminal,
} from './options.ts';
import { promptForSql } from './prompt.ts';
import { unlessBrokenPipe, writeOutput } from '../../output/destination.ts';
import { formatWritten } from '../../output/format.ts';
import { formatTable } from '../../output/table.ts';

export const query: Handler<QueryCommandOptions> = async (options, context) => {
  if (options.list) return listQuestions();
  if (options.sql === undefined && process.stdin.isTTY) return converse(options, context);
  const given = options.sql ?? (await readText(process.stdin)).trim();
  if (given === '') {
    throw new UsageError([
      `query: give SQL, or the name of a ready question; 'ledger-mirror query --list' shows them`,
    ]);
  }
  const asked = readQueryOptions(options, given, context.isJson);
  if (options.output === undefined) refuseTerminal(asked, context.stdout);
  const isOfParty = typeof asked.parameters?.party === 'string';
  const sql = isOfParty ? `${asked.sql}; ${KNOWN_PARTIES}` : asked.sql;
  await using lake = await open(context, { sql, range: asked.range });
  const file = options.output;
  if (file === undefined) {
    // Whoever reads it, such as `head`, may have read enough.
    await answer(lake, asked, context, context.stdout).catch(unlessBrokenPipe);
    return {};
  }
  const rows = await writeOutput(resolve(file), context.signal, (output) =>
    answer(lake, asked, context, output),
  );
  const written = { rows: String(rows), file };
  context.stderr.write(formatWritten(written));
  return { document: { written } };
};

async function open(context: CommandContext, wanted: Pick<LakeOptions, 'sql' | 'range'>): Promise<Lake> {
  requireMirror(context.config, context.config.objectStoreUrl, 'objects');
  await using stack = new AsyncDisposableStack();
  const objects = stack.use(await openStore(context));
  const lake = stack.use(
    await openLake({ objects, scratchDir: scratchDirOf(context.config), ...wanted }, context.signal),
  );
  const owned = stack.move();
  return { ...lake, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

/** @returns how many rows were written */
async function answer(lake: Lake, asked: Asked, context: CommandContext, output: Writable): Promise<bigint> {
  await using folder = await scratchFolder(scratchDirOf(context.config));
  const { sql, parameters: given, rows, note, format, timeoutMs } = asked;
  const parameters =
    given && rows !== undefined ? await completeIds({ parameters: given, rows }, lake.connection) : {};
  const widthMax = context.stdout.columns;
  const options = { format, timeoutMs, widthMax, folder: folder.path, parameters };
  const written = await runQuery(lake, sql, options, output, context.signal);
  if (note !== undefined && format === 'table' && (await hasOneSided(lake.connection)))
    context.stderr.write(`${note}\n`);
  return written;
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
    await answer(lake, asked, context, context.stdout).catch(unlessBrokenPipe);
  });
  return {};
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
    document: READY_QUESTIONS.map((question) => {
      const { name, title, parameters } = question;
      return { name, title, parameters, sql: inquiry(question).sql };
    }),
    text: questionTable(),
  };
}
