/**
 * The statements of nights: the key that signs them, the log as this database last wrote
 * it, and the places of the ledgers' records and their pages in the object store.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // Lets a database that was copied or restored notice that the log has continued
  // without it.
  `create table mirror.proof_log (
    only_row boolean primary key default true check (only_row),
    signing_key text,
    key_name text,
    size integer not null default 0 check (size >= 0),
    root text check (root ~ '^[0-9a-f]{64}$'),
    statement_sha256 text check (statement_sha256 ~ '^[0-9a-f]{64}$'),
    settled_at timestamptz)`,
  `create table mirror.proof_ledgers (
    party_id text not null,
    asset_id text,
    leaf text not null check (leaf ~ '^[0-9a-f]{64}$'),
    rows bigint not null check (rows >= 0),
    covered jsonb not null,
    file text not null,
    at bigint not null,
    bytes bigint not null,
    constraint proof_ledgers_key unique nulls not distinct (party_id, asset_id))`,
  `create table mirror.proof_pages (
    hash text primary key check (hash ~ '^[0-9a-f]{64}$'),
    file text not null,
    at bigint not null,
    bytes bigint not null)`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
