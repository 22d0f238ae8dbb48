/** The tables of `mirror` as Kysely sees them. Times are RFC 3339 text, int8 bigint, numeric text. */
import type { ColumnType, Generated, JSONColumnType } from 'kysely';
import type { Verdict } from '../core/verdict.ts';

/** Read as canonical text; written as text that Postgres reads. */
type Timestamp = string;
type Json<T extends object | null = Readonly<Record<string, unknown>>> = JSONColumnType<T>;
type GeneratedJson = ColumnType<Readonly<Record<string, unknown>>, string | undefined, string>;
/** int8 arrives as bigint and is sent as bigint or text. */
type Int8 = ColumnType<bigint, bigint | number | string, bigint | number | string>;
type GeneratedInt8 = ColumnType<bigint, bigint | number | string | undefined, bigint | number | string>;
/** numeric arrives as text and is sent as text or bigint. */
type Numeric = ColumnType<string, string | bigint, string | bigint>;
type Nullable<C> =
  C extends ColumnType<infer S, infer I, infer U>
    ? ColumnType<S | null, I | null | undefined, U | null>
    : C | null;

export type RunKind = 'sync' | 'export' | 'load' | 'nightly' | 'verify';
export type RunState = 'queued' | 'running' | 'done' | 'cancelled';
export type ListName = 'parties' | 'checkpoints';

interface IdentityTable {
  only_row: Generated<boolean>;
  mirror_id: Generated<string>;
  warehouse_id: Generated<string>;
  source_url: string | null;
  publication_seq: GeneratedInt8;
  cursor_secret: Generated<Buffer>;
  created_at: Generated<Timestamp>;
  is_rebuilding: Generated<boolean>;
}

interface SourceStateTable {
  only_row: Generated<boolean>;
  ban_until: Timestamp | null;
  profile: GeneratedJson;
}

interface NetworksTable {
  epoch: number;
  started_at: Generated<Timestamp>;
  evidence: GeneratedJson;
}

interface RunsTable {
  run_id: string;
  parent_run_id: string | null;
  kind: RunKind;
  subject: string;
  source_url: string | null;
  slot: string | null;
  params: GeneratedJson;
  state: Generated<RunState>;
  verdict: Verdict | null;
  evidence: GeneratedJson;
  queued_at: Generated<Timestamp>;
  started_at: Timestamp | null;
  heartbeat_at: Timestamp | null;
  finished_at: Timestamp | null;
  attempts: Generated<number>;
  cancel_requested: Generated<boolean>;
  job_id: string | null;
}

interface WorkersTable {
  worker_id: string;
  name: string;
  queues: readonly string[];
  source_url: string | null;
  schedules: GeneratedJson;
  started_at: Generated<Timestamp>;
  heartbeat_at: Generated<Timestamp>;
}

interface PartiesTable {
  party_id: string;
  first_epoch: number;
  first_seen_at: Generated<Timestamp>;
  last_seen_at: Generated<Timestamp>;
  extra: Json | null;
  /** Of the place: the newest epoch that the party was listed in. Null without a place. */
  epoch: number | null;
  pos: Nullable<Int8>;
  gone_since: Timestamp | null;
}

interface CheckpointsTable {
  epoch: number;
  at_block: Numeric;
  hash: string;
  block_hash: string;
  copies: Generated<number>;
  first_seen_at: Generated<Timestamp>;
  gone_since: Timestamp | null;
  extra: Json | null;
}

interface ExportsTable {
  export_id: GeneratedInt8;
  party_id: string;
  asset_id: string | null;
  lease_token: string | null;
  lease_holder: number | null;
  lease_until: Timestamp | null;
  coverage_seq: GeneratedInt8;
  recorded_seq: GeneratedInt8;
  attempts: Generated<number>;
  last_asked_at: Timestamp | null;
  last_entry_at: Timestamp | null;
  idle_nights: Generated<number>;
  quarantined_at: Timestamp | null;
  quarantine_reason: Json | null;
  window_plan: Json | null;
  contradictions: Generated<number>;
  is_at_source: Generated<boolean>;
  limit_wanted_at: Timestamp | null;
  limit_polled_at: Timestamp | null;
}

interface SegmentsTable {
  segment_id: GeneratedInt8;
  party_id: string;
  asset_id: string | null;
  from_time: Timestamp;
  to_time: Timestamp;
  open: Generated<boolean>;
  object_key: string;
  rows: Int8;
  bytes: Int8;
  sha256: string;
  object_bytes: Int8;
  object_sha256: string;
  digest: string;
  row_form: string;
  values_digest: string | null;
  columns: readonly string[];
  evidence: GeneratedJson;
  status: Generated<'current' | 'superseded'>;
  run_id: string | null;
  published_at: Generated<Timestamp>;
  superseded_at: Timestamp | null;
  removed_at: Timestamp | null;
  loaded_at: Timestamp | null;
  quarantine_reason: Json | null;
}

interface CoverageTable {
  coverage_id: GeneratedInt8;
  party_id: string;
  asset_id: string | null;
  from_time: Timestamp;
  to_time: Timestamp;
  open: Generated<boolean>;
  sides: 'from' | 'both' | 'unknown';
  segment_id: Nullable<Int8>;
  tail: Json | null;
  run_id: string | null;
  epoch: number | null;
  checked_at: Generated<Timestamp>;
}

interface PublicationsTable {
  publication_id: string;
  export_id: Int8;
  lease_token: string;
  plan: Json;
  state: Generated<'intent' | 'done' | 'dropped'>;
  created_at: Generated<Timestamp>;
}

interface LedgerEntriesTable {
  party_id: string;
  vega_time: Timestamp;
  quantity: Numeric;
  effect: Nullable<Numeric>;
  transfer_type: string;
  asset_id: string;
  account_from_market_id: string | null;
  account_from_party_id: string | null;
  account_from_account_type: string | null;
  account_from_balance: Nullable<Numeric>;
  account_to_market_id: string | null;
  account_to_party_id: string | null;
  account_to_account_type: string | null;
  account_to_balance: Nullable<Numeric>;
  extra: Json | null;
  segment_id: Int8;
}

interface SegmentMonthsTable {
  segment_id: Int8;
  /** The first of the month, `2023-05-01`. */
  month: string;
  rows: Int8;
  values_digest: string;
}

interface NightlyUnitsTable {
  run_id: string;
  party_id: string;
  priority: number;
  is_idle: Generated<boolean>;
  state: Generated<'due' | 'queued' | 'done' | 'failed'>;
  outcome: Json | null;
  updated_at: Generated<Timestamp>;
}

interface SourceCostsTable {
  run_id: string;
  process_id: string;
  list_requests: Int8;
  export_requests: Int8;
  retries: Int8;
  failures: Int8;
  bytes: Int8;
  waited_ms: Int8;
}

export interface MirrorSchema {
  identity: IdentityTable;
  source_state: SourceStateTable;
  networks: NetworksTable;
  runs: RunsTable;
  workers: WorkersTable;
  parties: PartiesTable;
  checkpoints: CheckpointsTable;
  exports: ExportsTable;
  segments: SegmentsTable;
  coverage: CoverageTable;
  publications: PublicationsTable;
  ledger_entries: LedgerEntriesTable;
  segment_months: SegmentMonthsTable;
  nightly_units: NightlyUnitsTable;
  source_costs: SourceCostsTable;
}
