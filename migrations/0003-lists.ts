/**
 * Parties and checkpoints, the generations that they were read in, and what speaks
 * against them. Runs are named and not referenced: they are history, and are cleared.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // pos is the place in the source's order, oldest lowest; gaps mean nothing. What was
  // listed without a place (`network`, a party that was looked up) has none.
  `create table mirror.parties (
    party_id text primary key,
    first_epoch int not null,
    first_seen_at timestamptz not null default clock_timestamp(),
    last_seen_at timestamptz not null default clock_timestamp(),
    extra jsonb,
    epoch int,
    pos bigint,
    gone_since timestamptz,
    constraint parties_epoch_pos_key unique (epoch, pos) deferrable initially immediate)`,
  // Whether there is any: if so, a text in the source's rows that is not hex may be a
  // party.
  `create index parties_own_ids on mirror.parties (party_id)
    where (length(party_id) <> 64 or party_id ~ '[^0-9a-f]') and party_id <> 'network'`,
  // One row for each distinct checkpoint; copies is how often the list holds it.
  `create table mirror.checkpoints (
    epoch int not null,
    at_block numeric(20,0) not null,
    hash text not null,
    block_hash text not null,
    copies int not null default 1,
    first_seen_at timestamptz not null default clock_timestamp(),
    pos bigint,
    gone_since timestamptz,
    extra jsonb,
    primary key (epoch, at_block, hash, block_hash),
    constraint checkpoints_epoch_pos_key unique (epoch, pos) deferrable initially immediate)`,

  // One reading of a list from its oldest row on, append-only. The current one is what
  // everybody reads: its rows are those of mirror.parties and mirror.checkpoints that
  // have a place. An audit's rows lie in mirror.audit_rows until it is claimed and takes
  // the current one's place in one transaction. sequence rises with each commit: a process that
  // goes on from an older resume point is refused.
  `create table mirror.generations (
    generation_id bigint generated always as identity primary key,
    list text not null check (list in ('parties', 'checkpoints')),
    epoch int not null,
    kind text not null check (kind in ('current', 'audit')),
    run_id uuid,
    sequence bigint not null default 0,
    resume_point jsonb,
    last_pos bigint not null default 0,
    rows bigint not null default 0 check (rows >= 0),
    pages bigint not null default 0,
    claimed_pos bigint not null default 0,
    claimed_rows bigint not null default 0,
    head_height numeric(20,0),
    head_time timestamptz,
    is_append_only boolean not null default true,
    started_at timestamptz not null default clock_timestamp(),
    claimed_at timestamptz,
    audited_at timestamptz,
    unique (list, epoch, kind),
    check (claimed_rows <= rows or claimed_at is null))`,
  `create table mirror.audit_rows (
    generation_id bigint not null references mirror.generations on delete cascade,
    pos bigint not null,
    key text not null,
    copies int not null default 1,
    extra jsonb,
    primary key (generation_id, pos),
    unique (generation_id, key))`,
  // A lease outlives a process that gets no time, as long as that process is connected;
  // of one that is gone, or never said who it is, what was not renewed for ten seconds is
  // free. A process is connected while it holds its lock.
  `create function mirror.is_leased(lease_until timestamptz, holder int) returns boolean language sql volatile as $$
    select lease_until > clock_timestamp() and (lease_until > clock_timestamp() + interval '50 seconds' or exists (
      select from pg_locks where locktype = 'advisory' and classid = 1819110756 and objid = holder::oid and objsubid = 2
        and database = (select oid from pg_database where datname = current_database()))) $$`,
  'revoke execute on function mirror.is_leased(timestamptz, int) from public',
  // Who syncs a list, by the database's clock.
  `create table mirror.list_leases (
    list text primary key check (list in ('parties', 'checkpoints')),
    token uuid,
    lease_until timestamptz,
    lease_holder int)`,
  `insert into mirror.list_leases (list) values ('parties'), ('checkpoints')`,

  // A reason not to say complete. Only an audit that ends without one closes it.
  `create table mirror.doubts (
    doubt_id bigint generated always as identity primary key,
    subject text not null,
    epoch int not null,
    code text not null,
    seen jsonb not null default '{}',
    run_id uuid,
    opened_at timestamptz not null default clock_timestamp(),
    closed_at timestamptz,
    closed_by_run uuid,
    check ((closed_at is null) = (closed_by_run is null)))`,
  'create unique index doubts_open on mirror.doubts (subject, epoch, code) where closed_at is null',
  // Rows that the source no longer served when they were to be read: between two held
  // rows.
  `create table mirror.list_gaps (
    gap_id bigint generated always as identity primary key,
    list text not null check (list in ('parties', 'checkpoints')),
    epoch int not null,
    below_key text not null,
    above_key text not null,
    run_id uuid,
    found_at timestamptz not null default clock_timestamp(),
    confirmed_by_run uuid,
    closed_at timestamptz)`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
