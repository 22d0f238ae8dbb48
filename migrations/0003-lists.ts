/** Parties and checkpoints, and how each list was proven. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `create table mirror.parties (
    party_id text primary key,
    first_epoch int not null,
    first_seen_at timestamptz not null default clock_timestamp(),
    last_seen_at timestamptz not null default clock_timestamp(),
    source_time timestamptz,
    extra jsonb,
    epoch int,
    pos bigint,
    last_seen_walk bigint,
    gone_since timestamptz,
    constraint parties_place_check check ((epoch is null) = (pos is null)),
    constraint parties_epoch_pos_key unique (epoch, pos) deferrable initially immediate)`,
  `create table mirror.checkpoints (
    epoch int not null,
    at_block numeric(20,0) not null,
    hash text not null,
    block_hash text not null,
    copies int not null default 1,
    first_seen_at timestamptz not null default clock_timestamp(),
    last_seen_walk bigint,
    gone_since timestamptz,
    extra jsonb,
    primary key (epoch, at_block, hash, block_hash))`,

  // Places of earlier epochs, which nobody is asked for page by page.
  `create table mirror.former_places (
     epoch int not null,
     party_id text not null,
     pos bigint not null,
     last_seen_walk bigint,
     gone_since timestamptz,
     primary key (epoch, party_id))`,
  // Every place in every epoch. Which chain it belongs to follows from pos alone.
  `create view mirror.places as
     select epoch, party_id, pos, last_seen_walk, gone_since from mirror.parties where epoch is not null
     union all
     select epoch, party_id, pos, last_seen_walk, gone_since from mirror.former_places`,
  // A stretch of a list, unbroken because every page border in it was proven by overlap. lo and hi
  // are positions: mirror.places.pos for parties, heights for checkpoints. An audit reads the same axis
  // again with chains of its own, which take the place of the others once it is complete.
  `create table mirror.chains (
    chain_id bigint generated always as identity primary key,
    epoch int not null,
    list text not null check (list in ('parties', 'checkpoints')),
    lo numeric(20,0) not null,
    hi numeric(20,0) not null check (lo <= hi),
    has_tail boolean not null default false,
    has_head boolean not null default false,
    head_walk bigint,
    head_height numeric(20,0),
    head_time timestamptz,
    bottom_anchors jsonb not null default '[]',
    top_anchors jsonb not null default '[]',
    audit_walk bigint,
    exclude using gist (
      epoch with =, list with =, coalesce(audit_walk, 0) with =, numrange(lo, hi, '[]') with &&)
      deferrable initially immediate)`,
  `create table mirror.walks (
    walk_id bigint generated always as identity primary key,
    epoch int not null,
    list text not null check (list in ('parties', 'checkpoints')),
    kind text not null check (kind in ('walk', 'audit')),
    run_id uuid not null references mirror.runs,
    base_url text not null,
    state text not null default 'open' check (state in ('open', 'finished', 'abandoned')),
    lease_token uuid,
    lease_until timestamptz,
    violations jsonb not null default '[]',
    started_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz)`,
  `create unique index walks_open on mirror.walks (list) where state = 'open'`,
  // Every page a walk committed: the guard against cursor cycles of any length, across crashes, and
  // the answer to "was that COMMIT done?".
  `create table mirror.walk_pages (
    walk_id bigint not null references mirror.walks,
    direction text not null check (direction in ('up', 'down', 'head', 'tail')),
    after_hash bytea not null,
    size int not null,
    page_no int not null,
    rows int not null,
    new_rows int not null,
    first_key text,
    last_key text,
    source_height numeric(20,0),
    committed_at timestamptz not null default clock_timestamp(),
    primary key (walk_id, direction, after_hash, size))`,
  `create table mirror.known_gaps (
    gap_id bigint generated always as identity primary key,
    epoch int not null,
    list text not null,
    below_key text,
    above_key text,
    run_id uuid references mirror.runs,
    reason text not null,
    found_at timestamptz not null default clock_timestamp())`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
