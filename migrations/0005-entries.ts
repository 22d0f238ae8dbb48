/** Loaded ledger entries. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
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

  // What a load brought, by month. The sums add up to the segment's sum, and to the
  // month's sum in the lake.
  `create table mirror.segment_months (
    segment_id bigint not null references mirror.segments,
    month date not null check (month = date_trunc('month', month)),
    rows bigint not null,
    values_digest text not null,
    primary key (segment_id, month))`,
  'create index segment_months_by_month on mirror.segment_months (month)',
  // When a segment's object and rows were last proven. Each nightly run proves new
  // segments, and a share of the others.
  `create table mirror.segment_proofs (
    segment_id bigint primary key references mirror.segments on delete cascade,
    proven_at timestamptz not null default clock_timestamp())`,
  'create index segment_proofs_by_age on mirror.segment_proofs (proven_at)',

  // Numbers the builds of the lake, whether they finish or not; a number is never used
  // twice.
  'create sequence mirror.lake_builds',
  // The lake's tables as the last build left them, to compare with the contents of the
  // store.
  `create table mirror.lake_tables (
    name text primary key,
    table_id uuid not null,
    version bigint not null,
    build bigint not null,
    built_at timestamptz not null default clock_timestamp())`,
  // When a file of the lake was last checked against its SHA-256. Files take turns
  // like segments.
  `create table mirror.lake_proofs (
    key text primary key,
    proven_at timestamptz not null default clock_timestamp())`,
  // If a store lets two writers put the same commit, the newest commit of each table
  // is decided here first. Its content is kept until it is in the store, so that the next
  // writer puts the same bytes.
  `create table mirror.lake_commits (
    store text not null,
    name text not null,
    version bigint not null,
    content bytea,
    primary key (store, name))`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
