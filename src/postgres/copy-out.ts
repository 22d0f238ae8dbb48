/** Rows out of Postgres by COPY, at the reader's pace. */
import type { Pool, PoolClient } from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { databaseError, mapDatabaseError } from './database-error.ts';

/** Whole lines of what `copy … to stdout` sends in text format, some at a time, on a connection of its own. */
export async function* copyLines(
  pool: Pool,
  ...[statement, action, signal]: CopyOf
): AsyncGenerator<readonly string[]> {
  signal.throwIfAborted();
  const decoder = new TextDecoder();
  let partial = '';
  let isBroken = true;
  const client = await mapDatabaseError(action, () => pool.connect());
  try {
    for await (const chunk of copyOut(client, statement, action, signal)) {
      const lines = (partial + decoder.decode(chunk, { stream: true })).split('\n');
      partial = lines.pop() ?? '';
      yield lines;
    }
    isBroken = false;
  } finally {
    // Closed where the reader stopped early.
    client.release(isBroken);
  }
}

type CopyOf = [statement: string, action: string, signal: AbortSignal];

/**
 * Yields what `copy … to stdout` sends, in chunks cut anywhere. The connection is of no more use where the reader
 * stopped early.
 */
export async function* copyOut(
  client: PoolClient,
  ...[statement, action, signal]: CopyOf
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
