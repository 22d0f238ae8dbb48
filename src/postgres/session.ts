/**
 * One connection of the pool, for work that must stay on the same connection: a lock that
 * outlives a statement, a COPY, or a transaction that contains a COPY.
 */
import { once } from 'node:events';
import type { CompiledQuery, QueryResult } from 'kysely';
import type { Pool, PoolClient, QueryResultRow } from 'pg';
import { mapDatabaseError } from './database-error.ts';
import type { StatementRunner } from './run-statement.ts';
import type { PreparedQuery } from './statement.ts';

export class Session implements StatementRunner {
  /**
   * For COPY only, and only in this folder; every other statement uses `executeQuery`.
   */
  readonly client: PoolClient;

  constructor(client: PoolClient) {
    this.client = client;
  }

  async executeQuery<Row>(
    query: CompiledQuery<Row>,
  ): Promise<QueryResult<Row>> {
    const { rows, rowCount } = await this.client.query<QueryResultRow>(
      query.sql,
      [...query.parameters],
    );
    return { rows: rows as Row[], numAffectedRows: BigInt(rowCount ?? 0) };
  }

  /** Resolves when the connection ends, and rejects when `signal` aborts. */
  async ended(signal: AbortSignal): Promise<void> {
    await once(this.client, 'end', { signal });
  }

  /**
   * Returns the connection to the pool.
   * @param isBroken whether a transaction or a COPY may still be running. If so, the
   *   connection is closed, which ends both
   */
  release(isBroken: boolean): void {
    this.client.release(isBroken);
  }
}

interface PoolRunnerOptions {
  /** Timeout of a statement; none if undefined. */
  readonly timeoutMs?: number;
}

/** Runs each statement independently, on any connection of the pool. */
export function poolRunner(
  pool: Pool,
  options: PoolRunnerOptions = {},
): StatementRunner {
  const { timeoutMs } = options;
  return {
    executeQuery: async <Row>(
      query: PreparedQuery<Row>,
    ): Promise<QueryResult<Row>> => {
      const { rows, rowCount } = await pool.query<QueryResultRow>({
        text: query.sql,
        values: [...query.parameters],
        ...(query.preparedAs === undefined ? {} : { name: query.preparedAs }),
        ...(timeoutMs === undefined ? {} : { query_timeout: timeoutMs }),
      });
      return { rows: rows as Row[], numAffectedRows: BigInt(rowCount ?? 0) };
    },
  };
}

/**
 * Takes a connection from the pool, or opens one.
 * @throws UnreachableError `DATABASE_UNREACHABLE`
 */
export async function openSession(
  pool: Pool,
  action: string,
): Promise<Session> {
  return new Session(await mapDatabaseError(action, () => pool.connect()));
}
