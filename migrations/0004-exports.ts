/** What was exported and published, and which processes are exporting now. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // An export covers a party, and one asset or all. Its lease names the process that
  // works on it. Leases at the source count towards the export limit, which is stored
  // here with and without Redis, because flushing Redis must not release it.
  `create table mirror.exports (
    export_id bigint generated always as identity primary key,
    party_id text not null,
    asset_id text,
    lease_token uuid,
    lease_until timestamptz,
    lease_holder int,
    attempts int not null default 0,
    last_asked_at timestamptz,
    last_entry_at timestamptz,
    idle_nights int not null default 0,
    quarantined_at timestamptz,
    quarantine_reason jsonb,
    window_plan jsonb,
    contradictions int not null default 0,
    is_at_source boolean not null default false,
    limit_wanted_at timestamptz,
    limit_polled_at timestamptz,
    unique nulls not distinct (party_id, asset_id))`,
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
    quarantine_reason jsonb,
    exclude using gist (
      party_id with =,
      (case when asset_id is null then mirror.text_range(null, null) else mirror.text_range(asset_id, asset_id, '[]') end) with &&,
      tstzrange(from_time, to_time) with &&) where (status = 'current'))`,
  `create index segments_to_load on mirror.segments (party_id) where status = 'current' and loaded_at is null`,
  `create index segments_to_unload on mirror.segments (party_id) where status = 'superseded' and loaded_at is not null`,
  'create index segments_quarantined on mirror.segments (segment_id) where quarantine_reason is not null',
  'create index segments_by_party on mirror.segments (party_id, from_time)',
  // The ranges of a ledger that are proven to be known: current segments, and ranges
  // without entries.
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
    epoch int,
    checked_at timestamptz not null default clock_timestamp(),
    exclude using gist (
      party_id with =,
      (case when asset_id is null then mirror.text_range(null, null) else mirror.text_range(asset_id, asset_id, '[]') end) with &&,
      tstzrange(from_time, to_time) with &&))`,
  'create index coverage_of_segment on mirror.coverage (segment_id)',
  // The status reads every range and the sums of every segment, in the order of
  // parties, from these indexes alone.
  `create index coverage_by_party on mirror.coverage (party_id, asset_id)
     include (from_time, to_time, open, segment_id, checked_at)`,
  `create index segments_current on mirror.segments (party_id) include (rows, bytes, loaded_at) where status = 'current'`,
  // Everything that one COMMIT will make visible. The row is written before the first
  // object, so that after a crash between the two the publication is either finished from
  // it or dropped.
  `create table mirror.publications (
    publication_id uuid primary key,
    export_id bigint not null references mirror.exports,
    lease_token uuid not null,
    plan jsonb not null,
    state text not null default 'intent' check (state in ('intent', 'done', 'dropped')),
    created_at timestamptz not null default clock_timestamp())`,
  'create index publications_of_export on mirror.publications (export_id)',
  // The console's queries of every second must not scan a table of a million ledgers
  // for the few that matter.
  'create index exports_leased on mirror.exports (lease_until) where lease_until is not null',
  // Each request to the source counts the exports that are at the source; a night
  // leases hundreds.
  'create index exports_at_source on mirror.exports (lease_until) where is_at_source',
  'create index exports_quarantined on mirror.exports (quarantined_at) where quarantined_at is not null',
  `create index exports_by_entry on mirror.exports (last_entry_at desc, export_id desc)
     where last_entry_at is not null`,
  'create index exports_waiting on mirror.exports (limit_wanted_at) where limit_wanted_at is not null',
  'create index segments_by_publication on mirror.segments (published_at desc)',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
