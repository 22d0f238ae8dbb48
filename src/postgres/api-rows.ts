/** Runs the statements of the read API, each on its own and with a timeout. */
import { CompiledQuery } from 'kysely';
import type { Pool } from 'pg';
import { readRows } from './run-statement.ts';
import { poolRunner } from './session.ts';
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
  const runner = poolRunner(pool, { timeoutMs: QUERY_TIMEOUT_MS });
  return async <Row extends object>(
    action: string,
    query: string | Statement<Row>,
    values: readonly unknown[] = [],
    name?: string,
  ): Promise<Row[]> => {
    const asked =
      typeof query === 'string' ? textOf<Row>(query, values, name) : query;
    return [...(await readRows(runner, action, asked))];
  };
}

/** A statement that declares no columns. */
function textOf<Row>(
  text: string,
  values: readonly unknown[],
  preparedAs: string | undefined,
): Statement<Row> {
  return {
    columns: {},
    compile: () => ({
      ...CompiledQuery.raw(text, [...values]),
      preparedAs,
    }),
  };
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
