/** Gives a copy of the database its own queues (src/postgres/identity.ts). */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // The names of queues and of keys in Redis contain this id. It starts as the
  // mirror's id, and is replaced as soon as the database finds that it was copied.
  'alter table mirror.identity add column queue_id uuid',
  'update mirror.identity set queue_id = mirror_id',
  'alter table mirror.identity alter column queue_id set default gen_random_uuid()',
  'alter table mirror.identity alter column queue_id set not null',
  // Where the database was when it was last opened: its oid, and the server's system
  // identifier if this role may read it.
  'alter table mirror.identity add column home_oid text',
  'alter table mirror.identity add column home_system text',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
