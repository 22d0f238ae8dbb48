/**
 * Makes the readings of a list cheaper. The primary key of the parties also has the
 * columns that the status reads in its order, so that a party is added to one index by its
 * id instead of two. The rows of an audit no longer have a foreign key, which Postgres
 * checked once for each row; a trigger deletes them with their generation.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `alter table mirror.parties
     drop constraint parties_pkey,
     add constraint parties_pkey primary key (party_id) include (epoch, gone_since)`,
  'drop index mirror.parties_listed',
  'alter table mirror.audit_rows drop constraint audit_rows_generation_id_fkey',
  `create function mirror.delete_audit_rows() returns trigger language plpgsql as $$
     begin
       delete from mirror.audit_rows where generation_id = old.generation_id;
       return null;
     end $$`,
  `create trigger delete_audit_rows after delete on mirror.generations
     for each row execute function mirror.delete_audit_rows()`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
