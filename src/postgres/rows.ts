/** Runs the statements of the read API, each on its own and with a timeout. */
import type { Pool } from 'pg';
import { mapDatabaseError } from './database-error.ts';
import type { Statement } from './statement.ts';

const QUERY_TIMEOUT_MS = 10_000;

/** A row with the columns that the statement selects. */
export type PlainRow = Readonly<Record<string, unknown>>;

export interface Rows {
  /** Runs a statement with declared columns. */
  <Row extends object>(action: string, query: Statement<Row>): Promise<Row[]>;
  /**
   * Runs one statement.
   * @param name the name under which a connection caches the statement's plan, at most 63
   *   characters
   */
  <Row extends object = PlainRow>(
    action: string,
    text: string,
    values?: unknown[],
    name?: string,
  ): Promise<Row[]>;
}

export function openRows(pool: Pool): Rows {
  return async <Row extends object>(
    action: string,
    query: string | Statement<Row>,
    values: unknown[] = [],
    name?: string,
  ): Promise<Row[]> => {
    if (typeof query !== 'string') {
      const { sql, parameters, preparedAs } = query.compile();
      return run(pool, action, sql, [...parameters], preparedAs);
    }
    return run(pool, action, query, values, name);
  };
}

async function run<Row extends object>(
  pool: Pool,
  action: string,
  text: string,
  values: unknown[],
  name: string | undefined,
): Promise<Row[]> {
  const kept = name === undefined ? {} : { name };
  const query = { text, values, ...kept, query_timeout: QUERY_TIMEOUT_MS };
  return (await mapDatabaseError(action, () => pool.query<Row>(query))).rows;
}

/**
 * Returns the only row of a statement that always yields exactly one, whatever is in the
 * tables.
 */
export async function onlyRow<Row>(
  found: Promise<readonly Row[]>,
): Promise<Row> {
  const [row] = await found;
  if (row === undefined)
    throw new TypeError('no row where there is always one');
  return row;
}
