/**
 * What statements read, as Postgres counts it: a cost that grows with the tables shows
 * here, on any machine.
 */
import { sql } from 'kysely';
import type { Database } from '../../../src/postgres/database.ts';

/**
 * Rows of `mirror` that this transaction has read until now, one by one or from an index.
 */
export async function rowsRead(tx: Database): Promise<number> {
  const found = await sql<{ read: string }>`
    select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::text as read
    from pg_stat_xact_user_tables where schemaname = 'mirror'`.execute(tx);
  return Number(found.rows[0]?.read);
}
