/**
 * When a second reading in a row showed the same list as the one before it. What was
 * claimed before this release keeps the standing that it had.
 */
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  const steps = [
    'alter table mirror.generations add column confirmed_at timestamptz',
    'update mirror.generations set confirmed_at = claimed_at',
  ];
  for (const step of steps) await sql.raw(step).execute(db);
}
