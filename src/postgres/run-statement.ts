/**
 * The only way to run a statement. The caller names the action for messages, and every
 * error is classified. The statements come from `statement` in statement.ts or `builder`
 * in builder.ts.
 */
import type { Compilable, CompiledQuery, QueryResult } from 'kysely';
import { mapDatabaseError } from './database-error.ts';
import type { Statement } from './statement.ts';

/** Runs compiled statements: the pool, a transaction, or one connection. */
export interface StatementRunner {
  executeQuery<Row>(query: CompiledQuery<Row>): Promise<QueryResult<Row>>;
}

/** A statement with declared columns, or one from the query builder. */
export type Query<Row> = Statement<Row> | Compilable<Row>;

/**
 * Runs a statement and returns its rows.
 * @param action what the statement does, for messages, in the infinitive: "read the
 *   coverage of ledgers"
 * @throws RetryableError, UnreachableError or PermanentError with a code `DATABASE_…`
 */
export async function readRows<Row>(
  db: StatementRunner,
  action: string,
  query: Query<Row>,
): Promise<readonly Row[]> {
  const { rows } = await run(db, action, query);
  return rows;
}

/**
 * Runs a statement that yields at most one row.
 * @returns undefined if there is no row
 * @throws as `readRows`
 */
export async function findRow<Row>(
  db: StatementRunner,
  action: string,
  query: Query<Row>,
): Promise<Row | undefined> {
  const { rows } = await run(db, action, query);
  return rows[0];
}

/**
 * Runs a statement that always yields exactly one row, whatever is in the tables, such as
 * an aggregate.
 * @throws as `readRows`, and TypeError if there is no row
 */
export async function readRow<Row>(
  db: StatementRunner,
  action: string,
  query: Query<Row>,
): Promise<Row> {
  const row = await findRow(db, action, query);
  if (row === undefined) {
    throw new TypeError(`Cannot ${action}: the statement returned no row`);
  }
  return row;
}

/**
 * Runs a statement for its effect.
 * @returns the number of rows inserted, updated or deleted; 0 for any other statement
 * @throws as `readRows`
 */
export async function execute(
  db: StatementRunner,
  action: string,
  query: Query<unknown>,
): Promise<bigint> {
  const { numAffectedRows } = await run(db, action, query);
  return numAffectedRows ?? 0n;
}

function run<Row>(
  db: StatementRunner,
  action: string,
  query: Query<Row>,
): Promise<QueryResult<Row>> {
  return mapDatabaseError(action, () => db.executeQuery(query.compile()));
}
