/**
 * What a statement does, by DuckDB's own word. EXPLAIN ANALYZE runs what it explains, COPY and INSERT included:
 * so what is explained is prepared by itself, and the explanation is put together anew around it.
 */
import { type DuckDBConnection, type DuckDBPreparedStatement, StatementType } from '@duckdb/node-api';
import { UsageError } from '../../core/errors.ts';
import { LAKE_TABLES } from '../tables/columns.ts';

const BLANK = /^(?:\s+|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)*/;
/** Postgres has the tables in a schema. */
const IN_SCHEMA = /Table with name "mirror\.(\w+)" does not exist because schema "mirror" does not exist\./i;
const UNKNOWN_TABLE = /(Table with name (\w+) does not exist!)(?:\nDid you mean .*)?/;
/** What is shorter stands in many names. */
const PART_LENGTH_MIN = 4;
/** Options are words: a value that is an expression has no place here. */
const OPTIONS = /^(?:analyze\b|\(\s*\w+(?:\s+\w+)?(?:\s*,\s*\w+(?:\s+\w+)?)*\s*\))/i;

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
  const isExplanation = statement.statementType === StatementType.EXPLAIN;
  statement.destroySync();
  const explained = isExplanation ? readExplanation(sql) : undefined;
  if (explained === undefined) throw writes();
  const inner = await prepareOne(connection, explained.sql);
  const isReading = inner.statementType === StatementType.SELECT;
  inner.destroySync();
  if (!isReading) throw writes();
  return prepareOne(connection, `explain ${explained.options} ${explained.sql}`);
}

/** What an EXPLAIN explains. What is misread here is refused, or run as it was read: never as it was meant. */
function readExplanation(sql: string): { readonly options: string; readonly sql: string } | undefined {
  const [keyword, rest] = split(sql, /^explain\b/i);
  if (keyword === '') return undefined;
  const [options, explained] = split(rest, OPTIONS);
  return { options, sql: explained };
}

/** The token at the beginning, behind blanks and comments, and what follows it. */
function split(sql: string, token: RegExp): readonly [token: string, rest: string] {
  const text = sql.replace(BLANK, '');
  const found = token.exec(text)?.[0] ?? '';
  return [found, text.slice(found.length)];
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
  return message
    .replace(UNKNOWN_TABLE, (told, problem: string, name: string) => {
      const meant = tableMeant(name);
      return meant === undefined ? told : `${problem}\nDid you mean "${meant}"?`;
    })
    .replace(IN_SCHEMA, (_, name: string) => {
      const meant = tableMeant(name);
      return `The lake has no schema "mirror"; ${meant === undefined ? 'show tables says what there is' : `here it is ${meant}`}.`;
    });
}

function tableMeant(name: string): string | undefined {
  if (name.length < PART_LENGTH_MIN) return undefined;
  return LAKE_TABLES.find((table) => table.includes(name.toLowerCase()));
}

function writes(): UsageError {
  return new UsageError(['SQL: it does more than read; a query is one SELECT (or EXPLAIN, DESCRIBE, SHOW)']);
}
