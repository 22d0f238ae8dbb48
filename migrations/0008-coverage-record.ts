/**
 * What is covered is recorded in the store as well, so that a lost database is rebuilt with all it knew:
 * how far each unit's coverage is recorded, and whether a rebuild is under way.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `alter table mirror.export_units add column recorded_seq bigint not null default 0,
     add column recording_seq bigint not null default 0`,
  'alter table mirror.identity add column is_rebuilding boolean not null default false',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
