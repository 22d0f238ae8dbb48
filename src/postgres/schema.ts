/** The tables of `mirror` that Kysely builds statements for. Times are RFC 3339 text, int8 bigint, numeric text. */
import type { ColumnType, Generated, JSONColumnType } from 'kysely';
import type { Verdict } from '../core/verdict.ts';

/** Read as canonical text; written as text that Postgres reads. */
type Timestamp = string;
type Json<T extends object | null = Readonly<Record<string, unknown>>> = JSONColumnType<T>;
type GeneratedJson = ColumnType<Readonly<Record<string, unknown>>, string | undefined, string>;
/** int8 arrives as bigint and is sent as bigint or text. */
type Int8 = ColumnType<bigint, bigint | number | string, bigint | number | string>;
type NullableInt8 = ColumnType<bigint | null, bigint | null, bigint | null>;
type GeneratedInt8 = ColumnType<bigint, bigint | number | string | undefined, bigint | number | string>;

export type RunKind = 'sync' | 'export' | 'load' | 'nightly' | 'verify';
export type RunState = 'queued' | 'running' | 'done' | 'cancelled';

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

interface ExportsTable {
  export_id: GeneratedInt8;
  party_id: string;
  asset_id: string | null;
  lease_token: string | null;
  lease_holder: number | null;
  lease_until: Timestamp | null;
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
  segment_id: NullableInt8;
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

export interface MirrorSchema {
  identity: IdentityTable;
  source_state: SourceStateTable;
  runs: RunsTable;
  exports: ExportsTable;
  segments: SegmentsTable;
  coverage: CoverageTable;
  publications: PublicationsTable;
}
