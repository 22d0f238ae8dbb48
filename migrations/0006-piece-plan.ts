/**
 * What a half-done export has lost and seen outlives the process, and Redis: so a kill costs no more than
 * once. And who waits for a place among the exports at once gets it in turn.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `alter table mirror.export_units add column piece_plan jsonb,
     add column slot_wanted_at timestamptz, add column slot_polled_at timestamptz`,
  'create index export_units_waiting on mirror.export_units (slot_wanted_at) where slot_wanted_at is not null',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
