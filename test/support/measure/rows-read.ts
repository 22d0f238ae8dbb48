/**
 * Counts the rows that statements read, from Postgres's own counters. Unlike durations,
 * these counts reveal on any machine that a cost grows with the tables.
 */
import { sql } from 'kysely';
import type { Database } from '../../../src/postgres/database.ts';

/**
 * Returns the rows of `mirror` that this transaction has read so far, in scans or from an
 * index.
 */
export async function rowsRead(tx: Database): Promise<number> {
  const found = await sql<{ read: string }>`
    select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::text as read
    from pg_stat_xact_user_tables where schemaname = 'mirror'`.execute(tx);
  return Number(found.rows[0]?.read);
}
