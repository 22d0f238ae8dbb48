/** Rows out of Postgres by COPY, at the reader's pace. */
import type { Pool, PoolClient } from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { ENTRY_COLUMNS, type EntryColumn } from '../ledger/canonical.ts';
import { databaseError, mapDatabaseError } from './transaction.ts';

function canonicalExpression(column: EntryColumn): string {
  if (column !== 'vega_time') return `${column}::text`;
  return `to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;
}

/** The canonical values of a ledger entry joined as they are summed, without what `extra` adds. */
export const CANONICAL_SQL = `array_to_string(array[${ENTRY_COLUMNS.map(canonicalExpression).join(', ')}], e'\\x1f', '')`;

/**
 * Yields what `copy … to stdout` sends, in chunks cut anywhere. Its connection is given back when the
 * copy has ended, and closed where the reader stopped early.
 */
export async function* copyOut(
  pool: Pool,
  statement: string,
  action: string,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  signal.throwIfAborted();
  let isBroken = true;
  const client = await mapDatabaseError(action, () => pool.connect());
  try {
    yield* copyOutOn(client, statement, action, signal);
    isBroken = false;
  } finally {
    client.release(isBroken);
  }
}

/** The same on a connection of the caller's, which is of no more use where the reader stopped early. */
export async function* copyOutOn(
  client: PoolClient,
  statement: string,
  action: string,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of client.query(copyTo(statement)) as AsyncIterable<Buffer>) {
      yield chunk;
      signal.throwIfAborted();
    }
  } catch (error) {
    signal.throwIfAborted();
    throw databaseError(action, error);
  }
}
