/**
 * Parties and checkpoints, the generations in which they were read, and the doubts about
 * them. Run ids have no foreign key, because runs are history and are deleted after some
 * time.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // pos is the place in the source's order, oldest lowest; gaps mean nothing. Parties
  // that were listed without a place have none: `network`, and parties that were looked
  // up.
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
  // Shows quickly whether there are any such ids. If there are, a text in the source's
  // rows that is not hex may be a party.
  `create index parties_own_ids on mirror.parties (party_id)
    where (length(party_id) <> 64 or party_id ~ '[^0-9a-f]') and party_id <> 'network'`,
  // One row for each distinct checkpoint; copies is the number of times that the list
  // contains it.
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

  // A generation is one reading of a list from its oldest row on, append-only. Readers
  // see the current one: its rows are those of mirror.parties and mirror.checkpoints that
  // have a place. An audit's rows are in mirror.audit_rows until it is claimed and
  // replaces the current generation in one transaction. sequence rises with each commit,
  // so that a process that resumes from an older resume point is refused.
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
  // A process holds an advisory lock while it is connected. During that time its lease
  // stays valid to its end, even if the process gets no CPU time. If the process is gone,
  // or never registered as the holder, its lease is free once it has not been renewed for
  // ten seconds.
  `create function mirror.is_leased(lease_until timestamptz, holder int) returns boolean language sql volatile as $$
    select lease_until > clock_timestamp() and (lease_until > clock_timestamp() + interval '50 seconds' or exists (
      select from pg_locks where locktype = 'advisory' and classid = 1819110756 and objid = holder::oid and objsubid = 2
        and database = (select oid from pg_database where datname = current_database()))) $$`,
  'revoke execute on function mirror.is_leased(timestamptz, int) from public',
  // Which process syncs a list, by the database's clock.
  `create table mirror.list_leases (
    list text primary key check (list in ('parties', 'checkpoints')),
    token uuid,
    lease_until timestamptz,
    lease_holder int)`,
  `insert into mirror.list_leases (list) values ('parties'), ('checkpoints')`,

  // A reason not to report a list as complete. Only an audit that finds no such reason
  // closes it.
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
  // Rows that the source no longer served when they were due to be read. Each gap is
  // between two stored rows.
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
