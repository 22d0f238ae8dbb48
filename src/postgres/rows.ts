/**
 * Statements of the read API: each alone, with a limit to how long its answer may take.
 */
import type { Pool } from 'pg';
import { mapDatabaseError } from './database-error.ts';

const QUERY_TIMEOUT_MS = 10_000;

/** The statement names the columns. */
export type PlainRow = Readonly<Record<string, unknown>>;

/**
 * @param name what a connection keeps the statement's plan under, at most 63 characters
 */
export type Rows = <Row extends object = PlainRow>(
  action: string,
  text: string,
  values?: unknown[],
  name?: string,
) => Promise<Row[]>;

export function openRows(pool: Pool): Rows {
  return async <Row extends object>(
    action: string,
    text: string,
    values: unknown[] = [],
    name?: string,
  ) => {
    const kept = name === undefined ? {} : { name };
    const query = { text, values, ...kept, query_timeout: QUERY_TIMEOUT_MS };
    return (await mapDatabaseError(action, () => pool.query<Row>(query))).rows;
  };
}

/** The row of a statement that has exactly one, whatever the tables hold. */
export async function onlyRow<Row>(
  found: Promise<readonly Row[]>,
): Promise<Row> {
  const [row] = await found;
  if (row === undefined)
    throw new TypeError('no row where there is always one');
  return row;
}
