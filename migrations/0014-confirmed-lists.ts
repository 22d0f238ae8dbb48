/**
 * Records when a second consecutive reading showed the same list as the one before. Lists
 * that were claimed before this release keep their status.
 */
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  const steps = [
    'alter table mirror.generations add column confirmed_at timestamptz',
    'update mirror.generations set confirmed_at = claimed_at',
  ];
  for (const step of steps) await sql.raw(step).execute(db);
}
