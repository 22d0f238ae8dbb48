/** Identifies this mirror and its source, and stores what is known about that source. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  'create schema if not exists mirror',
  'create extension if not exists btree_gist',
  // Assets are stored as ranges of text, (,) for every asset and [a,a] for one, so
  // that a constraint can compare them.
  'create type mirror.text_range as range (subtype = text, collation = "C")',

  // mirror_id belongs to this database alone, even if a rebuild takes over the lineage
  // of an earlier one; the names of queues and Redis keys contain it. A mirror has one
  // source. publication_seq rises with each publication, and distinguishes manifests of
  // this lineage from those that a restored database has forgotten. cursor_secret signs
  // the cursors that the read API issues.
  `create table mirror.identity (
    only_row boolean primary key default true check (only_row),
    mirror_id uuid not null default gen_random_uuid(),
    warehouse_id uuid not null default gen_random_uuid(),
    source_url text,
    publication_seq bigint not null default 0,
    is_rebuilding boolean not null default false,
    cursor_secret bytea not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    lock_seed bigint not null default hashtextextended(gen_random_uuid()::text, 0),
    created_at timestamptz not null default clock_timestamp())`,
  'insert into mirror.identity default values',
  // Readers of the views can take advisory locks too. If they could guess the keys,
  // they could stop everything.
  `create function mirror.lock_key(name text) returns bigint language sql stable as
    $$ select hashtextextended(name, lock_seed) from mirror.identity $$`,
  'revoke execute on function mirror.lock_key(text) from public',
  // Sessions of the console that logged out before they expired.
  `create table mirror.ended_sessions (
    session_id text primary key,
    until timestamptz not null)`,
  // ban_until must survive the loss of Redis, because requests during a ban make it
  // longer.
  `create table mirror.source_state (
    only_row boolean primary key default true check (only_row),
    ban_until timestamptz,
    profile jsonb not null default '{}')`,
  'insert into mirror.source_state default values',
  // An epoch is one life of the source's chain: heights start again in the next.
  `create table mirror.networks (
    epoch int primary key,
    started_at timestamptz not null default clock_timestamp(),
    evidence jsonb not null default '{}')`,
  'insert into mirror.networks (epoch) values (1)',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
