/**
 * Stores the public half of the key that signs the log of nights, for processes that only
 * read, and what a mirror of a mirror remembers of its source's log.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  'alter table mirror.proof_log add column public_key text',
  // The first key that the source showed, and the longest log that it signed.
  `create table mirror.source_log (
    only_row boolean primary key default true check (only_row),
    source_url text not null,
    public_key text not null,
    size integer not null check (size >= 0),
    root text not null check (root ~ '^[0-9a-f]{64}$'))`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
