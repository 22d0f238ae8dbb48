/**
 * What queries that Kysely builds name of the tables of `mirror`; migrations/schema.sql has all of them. Times are
 * RFC 3339 text, int8 bigint.
 */
import type { ColumnType, Generated, JSONColumnType } from 'kysely';
import type { Verdict } from '../core/verdict.ts';

/** Read as canonical text; written as text that Postgres reads. */
type Timestamp = string;
type Json<T extends object | null = Readonly<Record<string, unknown>>> = JSONColumnType<T>;
type GeneratedJson = ColumnType<Readonly<Record<string, unknown>>, string | undefined, string>;
/** int8 arrives as bigint and is sent as bigint or text. */
type Int8 = ColumnType<bigint, bigint | number | string, bigint | number | string>;
type GeneratedInt8 = ColumnType<bigint, bigint | number | string | undefined, bigint | number | string>;
type Nullable<C> =
  C extends ColumnType<infer S, infer I, infer U>
    ? ColumnType<S | null, I | null | undefined, U | null>
    : C | null;

export type RunKind = 'sync' | 'export' | 'load' | 'nightly' | 'verify';
export type RunState = 'queued' | 'running' | 'done' | 'cancelled';
export type ListName = 'parties' | 'checkpoints';

interface IdentityTable {
  mirror_id: Generated<string>;
  warehouse_id: Generated<string>;
  source_url: string | null;
  publication_seq: GeneratedInt8;
  is_rebuilding: Generated<boolean>;
}

interface SourceStateTable {
  ban_until: Timestamp | null;
  profile: GeneratedJson;
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
  source_url: string | null;
  started_at: Generated<Timestamp>;
  heartbeat_at: Generated<Timestamp>;
}

interface ExportsTable {
  export_id: GeneratedInt8;
  party_id: string;
  asset_id: string | null;
  lease_token: string | null;
  coverage_seq: GeneratedInt8;
  attempts: Generated<number>;
  quarantine_reason: Json | null;
  window_plan: Json | null;
  contradictions: Generated<number>;
  is_at_source: Generated<boolean>;
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

interface NightlyUnitsTable {
  run_id: string;
  party_id: string;
  priority: number;
  state: Generated<'due' | 'queued' | 'done' | 'failed'>;
  outcome: Json | null;
}

interface SourceCostsTable {
  run_id: string;
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
  runs: RunsTable;
  workers: WorkersTable;
  exports: ExportsTable;
  segments: SegmentsTable;
  coverage: CoverageTable;
  publications: PublicationsTable;
  nightly_units: NightlyUnitsTable;
  source_costs: SourceCostsTable;
}
