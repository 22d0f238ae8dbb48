/** The mirror's tables: what is listed, how it was proven, what was exported, and every run's verdict. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  'create schema if not exists mirror',
  'create extension if not exists btree_gist',
  // Assets as ranges of text: (,) is every asset, [a,a] is one. So a constraint can compare them.
  'create type mirror.text_range as range (subtype = text, collation = "C")',

  // One mirror is of one source. publication_seq rises with each publication and tells manifests of
  // this lineage from those that a restored database has forgotten. cursor_secret signs the cursors
  // that the read API hands out.
  `create table mirror.identity (
    only_row boolean primary key default true check (only_row),
    warehouse_id uuid not null default gen_random_uuid(),
    source_id text,
    source_url text,
    publication_seq bigint not null default 0,
    cursor_secret bytea not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    created_at timestamptz not null default clock_timestamp())`,
  'insert into mirror.identity default values',
  // ban_until: asking during a ban lengthens it, so it must survive a lost Redis.
  `create table mirror.source_state (
    only_row boolean primary key default true check (only_row),
    ban_until timestamptz,
    profile jsonb not null default '{}')`,
  'insert into mirror.source_state default values',
  // An epoch is one life of the source's chain: heights start again with the next.
  `create table mirror.networks (
    epoch int primary key,
    started_at timestamptz not null default clock_timestamp(),
    evidence jsonb not null default '{}')`,
  'insert into mirror.networks (epoch) values (1)',

  `create table mirror.runs (
    run_id uuid primary key,
    parent_run_id uuid references mirror.runs,
    kind text not null check (kind in ('walk', 'export', 'load', 'nightly', 'verify')),
    subject text not null,
    slot text unique,
    params jsonb not null default '{}',
    state text not null default 'queued' check (state in ('queued', 'running', 'done', 'cancelled')),
    verdict text check (verdict in ('complete', 'incomplete', 'suspicious', 'failed')),
    evidence jsonb not null default '{}',
    queued_at timestamptz not null default clock_timestamp(),
    started_at timestamptz,
    heartbeat_at timestamptz,
    finished_at timestamptz,
    attempts int not null default 0,
    cancel_requested boolean not null default false,
    check ((state = 'done') = (verdict is not null)),
    check ((state in ('done', 'cancelled')) = (finished_at is not null)))`,
  'create index runs_by_time on mirror.runs (queued_at desc)',
  'create index runs_by_kind on mirror.runs (kind, subject, queued_at desc)',
  `create index runs_open on mirror.runs (state) where state in ('queued', 'running')`,
  // A resumed run finds the runs it started before.
  'create unique index runs_of_parent on mirror.runs (parent_run_id, kind, subject) where parent_run_id is not null',

  // Long-lived processes that work jobs: a command looks here before it works its job itself.
  `create table mirror.workers (
    worker_id uuid primary key,
    name text not null,
    queues text[] not null,
    started_at timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp())`,

  `create table mirror.parties (
    party_id text primary key,
    first_epoch int not null,
    first_seen_at timestamptz not null default clock_timestamp(),
    last_seen_at timestamptz not null default clock_timestamp(),
    source_time timestamptz,
    extra jsonb)`,
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

  // Where a party stands in the source's order. Which chain it belongs to follows from pos alone.
  `create table mirror.places (
    epoch int not null,
    party_id text not null,
    pos bigint not null,
    last_seen_walk bigint,
    gone_since timestamptz,
    primary key (epoch, party_id),
    unique (epoch, pos) deferrable initially immediate)`,
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

  // One unit of export work: a party, and one asset or all. Its lease says who works on it.
  `create table mirror.export_units (
    unit_id bigint generated always as identity primary key,
    party_id text not null,
    asset_id text,
    lease_token uuid,
    lease_until timestamptz,
    coverage_seq bigint not null default 0,
    attempts int not null default 0,
    last_asked_at timestamptz,
    last_entry_at timestamptz,
    idle_nights int not null default 0,
    set_aside_at timestamptz,
    set_aside_reason jsonb,
    unique nulls not distinct (party_id, asset_id))`,
  // How many exports may run at once lies here in both modes: a flushed Redis must not free a slot.
  `create table mirror.export_slots (
    slot int primary key,
    lease_token uuid,
    lease_until timestamptz)`,
  `create table mirror.segments (
    segment_id bigint generated always as identity primary key,
    party_id text not null,
    asset_id text,
    from_time timestamptz not null,
    to_time timestamptz not null check (from_time < to_time),
    open boolean not null default false,
    object_key text not null unique,
    rows bigint not null,
    bytes bigint not null,
    sha256 text not null,
    object_bytes bigint not null,
    object_sha256 text not null,
    digest text not null,
    row_form text not null,
    values_digest text,
    columns text[] not null,
    evidence jsonb not null default '{}',
    status text not null default 'current' check (status in ('current', 'superseded')),
    run_id uuid,
    published_at timestamptz not null default clock_timestamp(),
    superseded_at timestamptz,
    removed_at timestamptz,
    loaded_at timestamptz,
    set_aside_reason jsonb,
    exclude using gist (
      party_id with =,
      (case when asset_id is null then mirror.text_range(null, null) else mirror.text_range(asset_id, asset_id, '[]') end) with &&,
      tstzrange(from_time, to_time) with &&) where (status = 'current'))`,
  `create index segments_to_load on mirror.segments (party_id) where status = 'current' and loaded_at is null`,
  `create index segments_to_unload on mirror.segments (party_id) where status = 'superseded' and loaded_at is not null`,
  'create index segments_by_party on mirror.segments (party_id, from_time)',
  // What is proven to be known of a ledger: current segments, and ranges without entries.
  `create table mirror.coverage (
    coverage_id bigint generated always as identity primary key,
    party_id text not null,
    asset_id text,
    from_time timestamptz not null,
    to_time timestamptz not null check (from_time < to_time),
    open boolean not null default false,
    sides text not null check (sides in ('from', 'both', 'unknown')),
    segment_id bigint references mirror.segments,
    tail jsonb,
    run_id uuid,
    checked_at timestamptz not null default clock_timestamp(),
    exclude using gist (
      party_id with =,
      (case when asset_id is null then mirror.text_range(null, null) else mirror.text_range(asset_id, asset_id, '[]') end) with &&,
      tstzrange(from_time, to_time) with &&))`,
  'create index coverage_of_segment on mirror.coverage (segment_id)',
  // Everything one COMMIT will make visible, written before its first object is: what a crash leaves
  // between the two is finished from here, or dropped.
  `create table mirror.publications (
    publication_id uuid primary key,
    unit_id bigint not null references mirror.export_units,
    lease_token uuid not null,
    plan jsonb not null,
    state text not null default 'intent' check (state in ('intent', 'done', 'dropped')),
    created_at timestamptz not null default clock_timestamp())`,
  'create index publications_of_unit on mirror.publications (unit_id)',

  `create table mirror.ledger_entries (
    party_id text not null,
    vega_time timestamptz not null,
    quantity numeric not null,
    effect numeric,
    transfer_type text not null,
    asset_id text not null,
    account_from_market_id text,
    account_from_party_id text,
    account_from_account_type text,
    account_from_balance numeric,
    account_to_market_id text,
    account_to_party_id text,
    account_to_account_type text,
    account_to_balance numeric,
    extra jsonb,
    segment_id bigint not null) partition by range (vega_time)`,
  'create index ledger_entries_by_party on mirror.ledger_entries (party_id, vega_time)',
  'create index ledger_entries_by_asset on mirror.ledger_entries (asset_id, vega_time)',
  'create index ledger_entries_by_segment on mirror.ledger_entries (segment_id)',

  // What a load brought, by month: the sums add up to the segment's, and to the month's in the lake.
  `create table mirror.segment_months (
    segment_id bigint not null references mirror.segments,
    month date not null check (month = date_trunc('month', month)),
    rows bigint not null,
    values_digest text not null,
    primary key (segment_id, month))`,
  'create index segment_months_by_month on mirror.segment_months (month)',

  // The night's list lies here, not in the queue: the verdict is computed from it.
  `create table mirror.nightly_units (
    run_id uuid not null references mirror.runs,
    party_id text not null,
    priority int not null,
    is_idle boolean not null default false,
    state text not null default 'due' check (state in ('due', 'queued', 'done', 'failed', 'deferred')),
    outcome jsonb,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (run_id, party_id))`,
  `create index nightly_units_open on mirror.nightly_units (run_id, priority) where state in ('due', 'queued')`,

  // Hints where there is no Redis. Losing them costs at most the piece in hand.
  `create unlogged table mirror.resume_state (
    key text primary key,
    value jsonb not null,
    expires_at timestamptz not null)`,
  'create index resume_state_expired on mirror.resume_state (expires_at)',
  `create unlogged table mirror.rate_budgets (
    budget text primary key,
    next_at timestamptz not null)`,
];

/** Everything under `mirror`; forward only. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
