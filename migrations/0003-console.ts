/** What the console asks every second must not read a table of a million ledgers to find the few that matter. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  'create index export_units_leased on mirror.export_units (lease_until) where lease_until is not null',
  'create index export_units_set_aside on mirror.export_units (set_aside_at) where set_aside_at is not null',
  `create index export_units_by_entry on mirror.export_units (last_entry_at desc, unit_id desc)
     where last_entry_at is not null`,
  'create index segments_by_publication on mirror.segments (published_at desc)',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
