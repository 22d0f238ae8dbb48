/**
 * Row types of the schema `mirror` for the query builder: int8 is bigint, timestamptz is RFC 3339 text,
 * and numeric is text. Written by 'npm run schema' from a migrated database; compared by a test.
 */
import type { ColumnType, GeneratedAlways } from 'kysely';

/** An insert must name the column, whose types for writing and for reading differ. */
type Required<Read, Write> = ColumnType<Read, Write, Write>;

/** An insert may leave the column out: it has a default, or takes null. */
type Optional<Read, Write = Read> = ColumnType<Read, Write | undefined, Write>;

export interface AuditRowsTable {
  generation_id: Required<bigint, bigint | string>;
  pos: Required<bigint, bigint | string>;
  key: string;
  copies: Optional<number>;
  extra: Optional<unknown, string | null>;
}

export interface CheckpointsTable {
  epoch: number;
  at_block: Required<string, string | bigint>;
  hash: string;
  block_hash: string;
  copies: Optional<number>;
  first_seen_at: Optional<string>;
  pos: Optional<bigint | null, bigint | string | null>;
  gone_since: Optional<string | null>;
  extra: Optional<unknown, string | null>;
}

export interface ConfiguredAssetsTable {
  asset_id: string;
  symbol: string;
  decimals: number;
  from_file: Optional<boolean>;
}

export interface CoverageTable {
  coverage_id: GeneratedAlways<bigint>;
  party_id: string;
  asset_id: Optional<string | null>;
  from_time: string;
  to_time: string;
  open: Optional<boolean>;
  sides: 'from' | 'both' | 'unknown';
  segment_id: Optional<bigint | null, bigint | string | null>;
  tail: Optional<unknown, string | null>;
  run_id: Optional<string | null>;
  epoch: Optional<number | null>;
  checked_at: Optional<string>;
  differs_from_manifest: Optional<boolean>;
}

export interface DoubtsTable {
  doubt_id: GeneratedAlways<bigint>;
  subject: string;
  epoch: number;
  code: string;
  seen: Optional<unknown, string>;
  run_id: Optional<string | null>;
  opened_at: Optional<string>;
  closed_at: Optional<string | null>;
  closed_by_run: Optional<string | null>;
}

export interface EndedSessionsTable {
  session_id: string;
  until: string;
}

export interface ExportsTable {
  export_id: GeneratedAlways<bigint>;
  party_id: string;
  asset_id: Optional<string | null>;
  lease_token: Optional<string | null>;
  lease_until: Optional<string | null>;
  lease_holder: Optional<number | null>;
  attempts: Optional<number>;
  last_asked_at: Optional<string | null>;
  last_entry_at: Optional<string | null>;
  idle_nights: Optional<number>;
  quarantined_at: Optional<string | null>;
  quarantine_reason: Optional<unknown, string | null>;
  window_plan: Optional<unknown, string | null>;
  contradictions: Optional<number>;
  is_at_source: Optional<boolean>;
  limit_wanted_at: Optional<string | null>;
  limit_polled_at: Optional<string | null>;
  last_tried_at: Optional<string | null>;
}

export interface GenerationsTable {
  generation_id: GeneratedAlways<bigint>;
  list: 'parties' | 'checkpoints';
  epoch: number;
  kind: 'current' | 'audit';
  run_id: Optional<string | null>;
  sequence: Optional<bigint, bigint | string>;
  resume_point: Optional<unknown, string | null>;
  last_pos: Optional<bigint, bigint | string>;
  rows: Optional<bigint, bigint | string>;
  pages: Optional<bigint, bigint | string>;
  claimed_pos: Optional<bigint, bigint | string>;
  claimed_rows: Optional<bigint, bigint | string>;
  head_height: Optional<string | null, string | bigint | null>;
  head_time: Optional<string | null>;
  is_append_only: Optional<boolean>;
  started_at: Optional<string>;
  claimed_at: Optional<string | null>;
  audited_at: Optional<string | null>;
  largest_rows: Optional<bigint, bigint | string>;
  confirmed_at: Optional<string | null>;
}

export interface IdentityTable {
  only_row: Optional<boolean>;
  mirror_id: Optional<string>;
  warehouse_id: Optional<string>;
  source_url: Optional<string | null>;
  publication_seq: Optional<bigint, bigint | string>;
  is_rebuilding: Optional<boolean>;
  cursor_secret: Optional<Buffer>;
  lock_seed: Optional<bigint, bigint | string>;
  created_at: Optional<string>;
  store_claim: Optional<string | null>;
  store_mark: Optional<string | null>;
  queue_id: Optional<string>;
  home_oid: Optional<string | null>;
  home_system: Optional<string | null>;
}

export interface LakeCommitsTable {
  store: string;
  name: string;
  version: Required<bigint, bigint | string>;
  content: Optional<Buffer | null>;
}

export interface LakeProofsTable {
  key: string;
  proven_at: Optional<string>;
}

export interface LakeTablesTable {
  name: string;
  table_id: string;
  version: Required<bigint, bigint | string>;
  build: Required<bigint, bigint | string>;
  built_at: Optional<string>;
}

export interface LedgerEntriesTable {
  party_id: string;
  vega_time: string;
  quantity: Required<string, string | bigint>;
  effect: Optional<string | null, string | bigint | null>;
  transfer_type: string;
  asset_id: string;
  account_from_market_id: Optional<string | null>;
  account_from_party_id: Optional<string | null>;
  account_from_account_type: Optional<string | null>;
  account_from_balance: Optional<string | null, string | bigint | null>;
  account_to_market_id: Optional<string | null>;
  account_to_party_id: Optional<string | null>;
  account_to_account_type: Optional<string | null>;
  account_to_balance: Optional<string | null, string | bigint | null>;
  extra: Optional<unknown, string | null>;
  segment_id: Required<bigint, bigint | string>;
}

export interface ListGapsTable {
  gap_id: GeneratedAlways<bigint>;
  list: 'parties' | 'checkpoints';
  epoch: number;
  below_key: string;
  above_key: string;
  run_id: Optional<string | null>;
  found_at: Optional<string>;
  confirmed_by_run: Optional<string | null>;
  closed_at: Optional<string | null>;
}

export interface ListLeasesTable {
  list: 'parties' | 'checkpoints';
  token: Optional<string | null>;
  lease_until: Optional<string | null>;
  lease_holder: Optional<number | null>;
}

export interface MigrationsTable {
  name: string;
  timestamp: string;
}

export interface MigrationsLockTable {
  id: string;
  is_locked: Optional<number>;
}

export interface NetworksTable {
  epoch: number;
  started_at: Optional<string>;
  evidence: Optional<unknown, string>;
}

export interface NightlyScopeTable {
  only_row: Optional<boolean>;
  party_ids: Optional<string[] | null, readonly string[] | null>;
  asset_ids: Optional<string[] | null, readonly string[] | null>;
}

export interface NightlyUnitsTable {
  run_id: string;
  party_id: string;
  priority: number;
  is_idle: Optional<boolean>;
  state: Optional<'due' | 'queued' | 'done' | 'failed'>;
  outcome: Optional<unknown, string | null>;
  updated_at: Optional<string>;
}

export interface PartiesTable {
  party_id: string;
  first_epoch: number;
  first_seen_at: Optional<string>;
  last_seen_at: Optional<string>;
  extra: Optional<unknown, string | null>;
  epoch: Optional<number | null>;
  pos: Optional<bigint | null, bigint | string | null>;
  gone_since: Optional<string | null>;
  restored_at: Optional<string | null>;
}

export interface ProofLedgersTable {
  party_id: string;
  asset_id: Optional<string | null>;
  leaf: string;
  rows: Required<bigint, bigint | string>;
  covered: Required<unknown, string>;
  file: string;
  at: Required<bigint, bigint | string>;
  bytes: Required<bigint, bigint | string>;
}

export interface ProofLogTable {
  only_row: Optional<boolean>;
  signing_key: Optional<string | null>;
  key_name: Optional<string | null>;
  size: Optional<number>;
  root: Optional<string | null>;
  statement_sha256: Optional<string | null>;
  settled_at: Optional<string | null>;
  public_key: Optional<string | null>;
}

export interface ProofPagesTable {
  hash: string;
  file: string;
  at: Required<bigint, bigint | string>;
  bytes: Required<bigint, bigint | string>;
}

export interface PublicationsTable {
  publication_id: string;
  export_id: Required<bigint, bigint | string>;
  lease_token: string;
  plan: Required<unknown, string>;
  state: Optional<'intent' | 'done' | 'dropped'>;
  created_at: Optional<string>;
}

export interface RateBudgetsTable {
  budget: string;
  next_at: string;
}

export interface ResumeStateTable {
  key: string;
  value: Required<unknown, string>;
  expires_at: string;
}

export interface RunKeysTable {
  name: string;
  hash: string;
  run_id: string;
  made_at: Optional<string>;
}

export interface RunLogsTable {
  line_id: GeneratedAlways<bigint>;
  run_id: string;
  at: string;
  level: string;
  message: string;
  fields: Required<unknown, string>;
}

export interface RunsTable {
  run_id: string;
  parent_run_id: Optional<string | null>;
  kind: 'sync' | 'export' | 'load' | 'nightly' | 'verify';
  subject: string;
  source_url: Optional<string | null>;
  slot: Optional<string | null>;
  params: Optional<unknown, string>;
  state: Optional<'queued' | 'running' | 'done' | 'cancelled'>;
  verdict: Optional<'complete' | 'incomplete' | 'suspicious' | 'failed' | null>;
  evidence: Optional<unknown, string>;
  queued_at: Optional<string>;
  started_at: Optional<string | null>;
  heartbeat_at: Optional<string | null>;
  finished_at: Optional<string | null>;
  attempts: Optional<number>;
  cancel_requested: Optional<boolean>;
  job_id: Optional<string | null>;
}

export interface SchedulesTable {
  name: string;
  pattern: string;
  tz: string;
  set_at: Optional<string>;
}

export interface SegmentMonthsTable {
  segment_id: Required<bigint, bigint | string>;
  month: Required<Date, string>;
  rows: Required<bigint, bigint | string>;
  values_digest: string;
}

export interface SegmentProofsTable {
  segment_id: Required<bigint, bigint | string>;
  proven_at: Optional<string>;
}

export interface SegmentsTable {
  segment_id: GeneratedAlways<bigint>;
  party_id: string;
  asset_id: Optional<string | null>;
  from_time: string;
  to_time: string;
  open: Optional<boolean>;
  object_key: string;
  rows: Required<bigint, bigint | string>;
  bytes: Required<bigint, bigint | string>;
  sha256: string;
  object_bytes: Required<bigint, bigint | string>;
  object_sha256: string;
  digest: string;
  row_form: string;
  values_digest: Optional<string | null>;
  columns: Required<string[], readonly string[]>;
  evidence: Optional<unknown, string>;
  status: Optional<'current' | 'superseded'>;
  run_id: Optional<string | null>;
  published_at: Optional<string>;
  superseded_at: Optional<string | null>;
  removed_at: Optional<string | null>;
  loaded_at: Optional<string | null>;
  quarantine_reason: Optional<unknown, string | null>;
}

export interface SourceCostsTable {
  run_id: string;
  process_id: string;
  list_requests: Required<bigint, bigint | string>;
  export_requests: Required<bigint, bigint | string>;
  retries: Required<bigint, bigint | string>;
  failures: Required<bigint, bigint | string>;
  bytes: Required<bigint, bigint | string>;
  waited_ms: Required<bigint, bigint | string>;
}

export interface SourceLogTable {
  only_row: Optional<boolean>;
  source_url: string;
  public_key: string;
  size: number;
  root: string;
}

export interface SourceStateTable {
  only_row: Optional<boolean>;
  ban_until: Optional<string | null>;
  profile: Optional<unknown, string>;
}

export interface WorkersTable {
  worker_id: string;
  name: string;
  queues: Required<string[], readonly string[]>;
  source_url: Optional<string | null>;
  schedules: Optional<unknown, string>;
  started_at: Optional<string>;
  heartbeat_at: Optional<string>;
}

export interface Schema {
  'mirror.audit_rows': AuditRowsTable;
  'mirror.checkpoints': CheckpointsTable;
  'mirror.configured_assets': ConfiguredAssetsTable;
  'mirror.coverage': CoverageTable;
  'mirror.doubts': DoubtsTable;
  'mirror.ended_sessions': EndedSessionsTable;
  'mirror.exports': ExportsTable;
  'mirror.generations': GenerationsTable;
  'mirror.identity': IdentityTable;
  'mirror.lake_commits': LakeCommitsTable;
  'mirror.lake_proofs': LakeProofsTable;
  'mirror.lake_tables': LakeTablesTable;
  'mirror.ledger_entries': LedgerEntriesTable;
  'mirror.list_gaps': ListGapsTable;
  'mirror.list_leases': ListLeasesTable;
  'mirror.migrations': MigrationsTable;
  'mirror.migrations_lock': MigrationsLockTable;
  'mirror.networks': NetworksTable;
  'mirror.nightly_scope': NightlyScopeTable;
  'mirror.nightly_units': NightlyUnitsTable;
  'mirror.parties': PartiesTable;
  'mirror.proof_ledgers': ProofLedgersTable;
  'mirror.proof_log': ProofLogTable;
  'mirror.proof_pages': ProofPagesTable;
  'mirror.publications': PublicationsTable;
  'mirror.rate_budgets': RateBudgetsTable;
  'mirror.resume_state': ResumeStateTable;
  'mirror.run_keys': RunKeysTable;
  'mirror.run_logs': RunLogsTable;
  'mirror.runs': RunsTable;
  'mirror.schedules': SchedulesTable;
  'mirror.segment_months': SegmentMonthsTable;
  'mirror.segment_proofs': SegmentProofsTable;
  'mirror.segments': SegmentsTable;
  'mirror.source_costs': SourceCostsTable;
  'mirror.source_log': SourceLogTable;
  'mirror.source_state': SourceStateTable;
  'mirror.workers': WorkersTable;
}
