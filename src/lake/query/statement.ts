/**
 * What a statement does, by DuckDB's own word. EXPLAIN ANALYZE runs what it explains, COPY and INSERT included:
 * so what is explained is prepared by itself, too.
 */
import { type DuckDBConnection, type DuckDBPreparedStatement, StatementType } from '@duckdb/node-api';
import { UsageError } from '../../core/errors.ts';
import { LAKE_TABLES } from '../tables/columns.ts';

const UNKNOWN_TABLE = /(Table with name (\w+) does not exist!)(?:\nDid you mean .*)?/;
/** What is shorter stands in many names. */
const PART_LENGTH_MIN = 4;
/**
 * Nothing but words stands before what is explained: options that are expressions have no place here, nor have
 * comments, in which a statement could hide.
 */
const EXPLANATION = /^\s*explain(?:\s+analyze|\s*\([\w\s,]*\))?\s(?<explained>[\s\S]*)$/i;

/**
 * Prepares one statement that reads, and nothing else.
 * @throws UsageError where the SQL is wrong, more than one statement, or would do more than read
 */
export async function prepareReading(
  connection: DuckDBConnection,
  sql: string,
): Promise<DuckDBPreparedStatement> {
  const statement = await prepareOne(connection, sql);
  if (statement.statementType === StatementType.SELECT) return statement;
  const explained = EXPLANATION.exec(sql)?.groups?.['explained'];
  if (statement.statementType === StatementType.EXPLAIN && explained !== undefined) {
    const inner = await prepareOne(connection, explained);
    const isReading = inner.statementType === StatementType.SELECT;
    inner.destroySync();
    if (isReading) return statement;
  }
  statement.destroySync();
  throw new UsageError(['SQL: it does more than read; a query is one SELECT (or EXPLAIN, DESCRIBE, SHOW)']);
}

async function prepareOne(connection: DuckDBConnection, sql: string): Promise<DuckDBPreparedStatement> {
  try {
    const statements = await connection.extractStatements(sql);
    if (statements.count === 1) return await statements.prepare(0);
  } catch (error) {
    throw new UsageError([`SQL: ${suggestTable(error instanceof Error ? error.message : String(error))}`]);
  }
  throw new UsageError(['SQL: it must be one statement']);
}

/** DuckDB counts letters: for `checkpoint` it may suggest `parties`. Part of a table's name means that table. */
function suggestTable(message: string): string {
  return message.replace(UNKNOWN_TABLE, (told, problem: string, name: string) => {
    const meant = LAKE_TABLES.find((table) => table.includes(name.toLowerCase()));
    const isMeant = meant !== undefined && name.length >= PART_LENGTH_MIN;
    return isMeant ? `${problem}\nDid you mean "${meant}"?` : told;
  });
}
