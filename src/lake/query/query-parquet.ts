/** A result as one Parquet file, written by an engine of its own: the one that answers may write nothing. */
import { join } from 'node:path';
import type { DuckDBResult } from '@duckdb/node-api';
import { PermanentError } from '../../core/errors.ts';
import { openDuckDb } from '../local/duckdb.ts';
import { literal } from '../local/sql.ts';

/**
 * @param folder where the file is made, the caller's
 * @returns the path of the file, and how many rows it has
 * @throws PermanentError `QUERY_COLUMNS` where two columns have one name
 */
export async function writeParquet(
  result: DuckDBResult,
  folder: string,
  signal: AbortSignal,
): Promise<{ readonly path: string; readonly rows: bigint }> {
  const names = result.columnNames();
  refuseTwins(names);
  await using engine = await openDuckDb(folder);
  const columns = names.map((name, index) => `${identifier(name)} ${result.columnType(index).toString()}`);
  // In a file of its own: a large result spills instead of filling the memory.
  await engine.connection.run(`attach ${literal(join(folder, 'result.duckdb'))} as spool`);
  await engine.connection.run(`create table spool.result (${columns.join(', ')})`);
  const appender = await engine.connection.createAppender('result', 'main', 'spool');
  let rows = 0n;
  for await (const chunk of result) {
    signal.throwIfAborted();
    appender.appendDataChunk(chunk);
    rows += BigInt(chunk.rowCount);
  }
  appender.closeSync();
  const path = join(folder, 'result.parquet');
  await engine.connection.run(`copy spool.result to ${literal(path)} (format parquet, compression zstd)`);
  return { path, rows };
}

function identifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

function refuseTwins(names: readonly string[]): void {
  const twin = names.find((name, index) => names.indexOf(name) !== index);
  if (twin === undefined) return;
  throw new PermanentError(
    `Cannot write Parquet: two columns are called ${JSON.stringify(twin)}; give one of them another name with AS`,
    { code: 'QUERY_COLUMNS', meta: { column: twin } },
  );
}
