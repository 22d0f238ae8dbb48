import type { Pool, PoolClient } from 'pg';
import { mapDatabaseError } from './transaction.ts';

/**
 * Runs `work` on a connection that is closed behind it: its locks and settings end with it, whatever happens.
 * @param action what could not be done where there is no connection
 */
export async function onOwnConnection<Result>(
  pool: Pool,
  action: string,
  work: (client: PoolClient) => Promise<Result>,
): Promise<Result> {
  const client = await mapDatabaseError(action, () => pool.connect());
  try {
    return await work(client);
  } finally {
    client.release(true);
  }
}
