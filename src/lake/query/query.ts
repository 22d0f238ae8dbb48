/**
 * Runs read-only SQL on the lake: a single statement, with a timeout. Rows are produced
 * only as fast as the reader consumes them.
 */
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  type DuckDBConnection,
  type DuckDBResult,
  StatementType,
} from '@duckdb/node-api';
import { errorCode, PermanentError, UsageError } from '../../errors/errors.ts';
import type { AssetUnits } from '../../format/amounts.js';
import {
  interruptible,
  literal,
  openDuckDb,
  requireWhole,
} from '../local/duckdb.ts';
import type { Lake } from './lake.ts';
import { chartForm, keeping, type KeptResult } from './query-chart.ts';
import {
  type ResultColumn,
  TEXT_FORMS,
  type TextForm,
} from './query-output.ts';
import { adviseOnFailure, describeWrongSql } from './wrong-sql.ts';

export const QUERY_TIMEOUT_MS = 60_000;
const NO_UNITS: AssetUnits = new Map();

export const QUERY_FORMATS = [
  'table',
  'csv',
  'json',
  'ndjson',
  'parquet',
] as const;
/** `chart` is selected by a separate option, because it is not a file format. */
export type QueryFormat = (typeof QUERY_FORMATS)[number] | 'chart';

export interface QueryOptions {
  readonly format: QueryFormat;
  /**
   * A folder owned by the caller, in which a Parquet file is written before it is sent.
   * Required only for Parquet.
   */
  readonly folder?: string;
  /** Width of the terminal in characters; undefined if the output is not a terminal. */
  readonly widthMax?: number | undefined;
  /** Timeout for running the query and writing its result; default QUERY_TIMEOUT_MS. */
  readonly timeoutMs?: number | undefined;
  /**
   * How amounts are written in tables and charts; by default in the smallest unit. Files
   * and JSON always have the smallest unit.
   */
  readonly units?: AssetUnits;
  /** The column that a chart plots; if absent, the first column of amounts. */
  readonly figure?: string | undefined;
  /**
   * Receives the rows of a table or chart after the last of them was written, so that
   * they can be drawn without running the query again.
   */
  readonly keep?: ((result: KeptResult) => void) | undefined;
  /** Values of `$name` in the SQL; null stands for NULL. */
  readonly parameters?: Readonly<Record<string, string | null>>;
}

/**
 * Runs one statement and writes its result, without ending the writable.
 * @returns the number of rows written
 * @throws UsageError if the SQL is wrong, or would do more than read
 * @throws PermanentError `QUERY_TIMEOUT`; `QUERY_COLUMNS` if two Parquet columns have the
 *   same name; `DUCKDB` if the query failed while running
 */
export async function runQuery(
  lake: Pick<Lake, 'connection'>,
  sql: string,
  options: QueryOptions,
  output: Writable,
  signal: AbortSignal,
): Promise<bigint> {
  const {
    format,
    folder,
    widthMax,
    figure,
    keep,
    units = NO_UNITS,
    timeoutMs = QUERY_TIMEOUT_MS,
    parameters = {},
  } = options;
  const timeout = AbortSignal.timeout(timeoutMs);
  const limit = AbortSignal.any([signal, timeout]);
  try {
    using stack = new DisposableStack();
    const statement = await prepareReading(stack, lake.connection, sql);
    for (let index = 1; index <= statement.parameterCount; index += 1) {
      const name = statement.parameterName(index);
      const value = parameters[name];
      if (value === undefined)
        throw new UsageError([`SQL: the parameter $${name} has no value`]);
      if (value === null) statement.bindNull(index);
      else statement.bindVarchar(index, value);
    }
    return await interruptible(
      lake.connection,
      'answer the query',
      limit,
      async () => {
        const result = await statement.stream();
        if (format === 'parquet')
          return sendParquet(result, folder, output, limit);
        const columns = result
          .columnNames()
          .map((name, index) => ({ name, type: result.columnType(index) }));
        const form = textForm(columns, { format, figure, units, widthMax });
        const kept = keep === undefined ? form : keeping(form, columns, keep);
        return sendText(result, kept, output, limit);
      },
    );
  } catch (error) {
    signal.throwIfAborted();
    if (!timeout.aborted) throw withAdvice(error);
    throw new PermanentError(
      `Cannot answer the query: it had not finished after ${timeoutMs / 1000} s; ` +
        'limit vega_time. On the command line, --timeout raises the limit',
      { code: 'QUERY_TIMEOUT', cause: error },
    );
  }
}

function textForm(
  columns: readonly ResultColumn[],
  {
    format,
    figure,
    units,
    widthMax,
  }: Pick<QueryOptions, 'figure' | 'widthMax'> & {
    readonly format: Exclude<QueryFormat, 'parquet'>;
    readonly units: AssetUnits;
  },
): TextForm {
  if (format === 'chart')
    return chartForm(columns, { units, widthMax, figure });
  return format === 'table'
    ? TEXT_FORMS.table(columns, units, widthMax)
    : TEXT_FORMS[format](columns);
}

/** Returns the error, with advice added if there is any. */
function withAdvice(error: unknown): unknown {
  if (errorCode(error) !== 'DUCKDB' || !(error instanceof Error)) return error;
  const advice = adviseOnFailure(error.message);
  if (advice === '') return error;
  const message = `${error.message.split(/!?\n|!$/, 1)[0]}${advice}`;
  return new PermanentError(message, { code: 'DUCKDB', cause: error.cause });
}

async function sendText(
  result: DuckDBResult,
  form: TextForm,
  output: Writable,
  signal: AbortSignal,
) {
  const { begin, row, end } = form;
  let rows = 0;
  const write = async function* (): AsyncGenerator<string> {
    for await (const chunk of result.yieldRows()) {
      if (rows === 0) yield begin(chunk);
      const before = rows;
      yield chunk.map((values, index) => row(values, before + index)).join('');
      rows += chunk.length;
    }
    requireWhole(result);
    yield (rows === 0 ? begin([]) : '') + end(rows);
  };
  await pipeline(write, output, { end: false, signal });
  return BigInt(rows);
}

/**
 * Sends the result as one Parquet file. A second engine writes the file, because the
 * engine that runs the query is not allowed to write anything.
 */
async function sendParquet(
  result: DuckDBResult,
  folder: string | undefined,
  output: Writable,
  signal: AbortSignal,
): Promise<bigint> {
  if (folder === undefined) throw new TypeError('Parquet needs a folder');
  const names = result.columnNames();
  const twin = names.find((name, index) => names.indexOf(name) !== index);
  if (twin !== undefined) {
    throw new PermanentError(
      `Cannot write Parquet: two columns are called ${JSON.stringify(twin)}; give ` +
        'one of them another name with AS',
      { code: 'QUERY_COLUMNS', meta: { column: twin } },
    );
  }
  await using engine = await openDuckDb(folder);
  const quoted = names.map((name) => `"${name.replaceAll('"', '""')}"`);
  const columns = quoted.map(
    (name, index) => `${name} ${result.columnType(index).toString()}`,
  );
  // With a database file, DuckDB can spill a large result instead of keeping it in
  // memory.
  await engine.connection.run(
    `attach ${literal(join(folder, 'result.duckdb'))} as spool`,
  );
  await engine.connection.run(
    `create table spool.result (${columns.join(', ')})`,
  );
  const appender = await engine.connection.createAppender(
    'result',
    'main',
    'spool',
  );
  let rows = 0n;
  for await (const chunk of result) {
    signal.throwIfAborted();
    appender.appendDataChunk(chunk);
    rows += BigInt(chunk.rowCount);
  }
  requireWhole(result);
  appender.closeSync();
  const path = join(folder, 'result.parquet');
  await engine.connection.run(
    `copy spool.result to ${literal(path)} (format parquet, compression zstd)`,
  );
  await pipeline(createReadStream(path), output, { end: false, signal });
  return rows;
}

/**
 * Only plain words may precede the explained statement. Comments, and options that are
 * expressions, are not allowed, because another statement could hide in them.
 */
const EXPLANATION =
  /^\s*explain(?:\s+analyze|\s*\([\w\s,]*\))?\s(?<explained>[\s\S]*)$/i;

/**
 * Prepares one statement and requires DuckDB to classify it as read-only. EXPLAIN ANALYZE
 * runs the statement that it explains, even COPY or INSERT, so the explained statement is
 * prepared and checked too.
 * @throws UsageError if the SQL is wrong, is more than one statement, or would do more
 *   than read
 */
async function prepareReading(
  stack: DisposableStack,
  connection: DuckDBConnection,
  sql: string,
) {
  const prepare = async (text: string) =>
    stack.adopt(await prepareOne(connection, text), (prepared) =>
      prepared.destroySync(),
    );
  const statement = await prepare(sql);
  const isExplanation = statement.statementType === StatementType.EXPLAIN;
  const explained = isExplanation
    ? EXPLANATION.exec(sql)?.groups?.['explained']
    : undefined;
  const reading =
    explained === undefined ? statement : await prepare(explained);
  if (reading.statementType === StatementType.SELECT) return statement;
  throw new UsageError([
    'SQL: only reading is allowed: one SELECT, EXPLAIN, DESCRIBE or SHOW',
  ]);
}

/**
 * Prepares SQL that must be a single statement.
 * @throws UsageError if the SQL is wrong, or is more than one statement
 */
async function prepareOne(connection: DuckDBConnection, sql: string) {
  try {
    const statements = await connection.extractStatements(sql);
    if (statements.count === 1) return await statements.prepare(0);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new UsageError([await describeWrongSql(message, sql, connection)]);
  }
  throw new UsageError(['SQL: it must be one statement']);
}
