/**
 * Records the largest size of each list that was ever claimed, because erosion is
 * measured against it.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `alter table mirror.generations
    add column largest_rows bigint not null default 0 check (largest_rows >= 0)`,
  'update mirror.generations set largest_rows = claimed_rows',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
