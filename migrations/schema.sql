-- What the migrations make, as Postgres 18 says it. Written by 'npm run schema'; compared by a test.

-- Extensions

btree_gist

-- Range types

mirror.text_range as range (subtype = text)

-- Functions

CREATE OR REPLACE FUNCTION mirror.delete_audit_rows()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
     begin
       delete from mirror.audit_rows where generation_id = old.generation_id;
       return null;
     end $function$

CREATE OR REPLACE FUNCTION mirror.in_units(amount numeric, asset text)
 RETURNS numeric
 LANGUAGE sql
 STABLE PARALLEL SAFE
AS $function$
    select trim_scale(amount * ('1e-' || a.decimals)::numeric) from mirror.assets a where a.asset_id = asset
  $function$

CREATE OR REPLACE FUNCTION mirror.is_leased(lease_until timestamp with time zone, holder integer)
 RETURNS boolean
 LANGUAGE sql
AS $function$
    select lease_until > clock_timestamp() and (lease_until > clock_timestamp() + interval '50 seconds' or exists (
      select from pg_locks where locktype = 'advisory' and classid = 1819110756 and objid = holder::oid and objsubid = 2
        and database = (select oid from pg_database where datname = current_database()))) $function$

CREATE OR REPLACE FUNCTION mirror.lock_key(name text)
 RETURNS bigint
 LANGUAGE sql
 STABLE
AS $function$ select hashtextextended(name, lock_seed) from mirror.identity $function$

CREATE OR REPLACE FUNCTION mirror.refuse_overlapping_coverage()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog'
 SET enable_seqscan TO 'off'
AS $function$
     begin
       if exists (
         select from mirror.coverage known
         where known.coverage_id <> new.coverage_id and known.party_id = new.party_id
    and (known.asset_id is null or new.asset_id is null or known.asset_id = new.asset_id)
    and known.from_time < new.to_time and new.from_time < known.to_time) then
         raise exclusion_violation using
           message = 'range overlaps a known range of the same ledger',
           detail = format('party %s, asset %s, from %s to %s', new.party_id,
             coalesce(new.asset_id, 'all'), new.from_time, new.to_time),
           schema = 'mirror', table = 'coverage', constraint = 'coverage_do_not_overlap';
       end if;
       return null;
     end $function$

CREATE OR REPLACE FUNCTION mirror.refuse_overlapping_segments()
 RETURNS trigger
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog'
 SET enable_seqscan TO 'off'
AS $function$
     begin
       if exists (
         select from mirror.segments known
         where known.segment_id <> new.segment_id and known.party_id = new.party_id
    and (known.asset_id is null or new.asset_id is null or known.asset_id = new.asset_id)
    and known.from_time < new.to_time and new.from_time < known.to_time and (known.status = 'current')) then
         raise exclusion_violation using
           message = 'range overlaps a known range of the same ledger',
           detail = format('party %s, asset %s, from %s to %s', new.party_id,
             coalesce(new.asset_id, 'all'), new.from_time, new.to_time),
           schema = 'mirror', table = 'segments', constraint = 'segments_do_not_overlap';
       end if;
       return null;
     end $function$

-- Tables

table mirror.audit_rows
  generation_id bigint not null
  pos bigint not null
  key text not null
  copies integer not null default 1
  extra jsonb
  constraint audit_rows_generation_id_key_key UNIQUE (generation_id, key)
  constraint audit_rows_pkey PRIMARY KEY (generation_id, pos)

table mirror.checkpoints
  epoch integer not null
  at_block numeric(20,0) not null
  hash text not null
  block_hash text not null
  copies integer not null default 1
  first_seen_at timestamp with time zone not null default clock_timestamp()
  pos bigint
  gone_since timestamp with time zone
  extra jsonb
  constraint checkpoints_epoch_pos_key UNIQUE (epoch, pos) DEFERRABLE
  constraint checkpoints_pkey PRIMARY KEY (epoch, at_block, hash, block_hash)

table mirror.configured_assets
  asset_id text not null
  symbol text not null
  decimals smallint not null
  from_file boolean not null default false
  constraint configured_assets_asset_id_check CHECK ((asset_id ~ '^[0-9a-f]{64}$'::text))
  constraint configured_assets_decimals_check CHECK (((decimals >= 0) AND (decimals <= 38)))
  constraint configured_assets_pkey PRIMARY KEY (asset_id)

table mirror.coverage
  coverage_id bigint not null generated always as identity
  party_id text not null
  asset_id text
  from_time timestamp with time zone not null
  to_time timestamp with time zone not null
  open boolean not null default false
  sides text not null
  segment_id bigint
  tail jsonb
  run_id uuid
  epoch integer
  checked_at timestamp with time zone not null default clock_timestamp()
  differs_from_manifest boolean not null default false
  constraint coverage_check CHECK ((from_time < to_time))
  constraint coverage_pkey PRIMARY KEY (coverage_id)
  constraint coverage_segment_id_fkey FOREIGN KEY (segment_id) REFERENCES mirror.segments(segment_id)
  constraint coverage_sides_check CHECK ((sides = ANY (ARRAY['from'::text, 'both'::text, 'unknown'::text])))

table mirror.doubts
  doubt_id bigint not null generated always as identity
  subject text not null
  epoch integer not null
  code text not null
  seen jsonb not null default '{}'::jsonb
  run_id uuid
  opened_at timestamp with time zone not null default clock_timestamp()
  closed_at timestamp with time zone
  closed_by_run uuid
  constraint doubts_check CHECK (((closed_at IS NULL) = (closed_by_run IS NULL)))
  constraint doubts_pkey PRIMARY KEY (doubt_id)

table mirror.ended_sessions
  session_id text not null
  until timestamp with time zone not null
  constraint ended_sessions_pkey PRIMARY KEY (session_id)

table mirror.exports
  export_id bigint not null generated always as identity
  party_id text not null
  asset_id text
  lease_token uuid
  lease_until timestamp with time zone
  lease_holder integer
  attempts integer not null default 0
  last_asked_at timestamp with time zone
  last_entry_at timestamp with time zone
  idle_nights integer not null default 0
  quarantined_at timestamp with time zone
  quarantine_reason jsonb
  window_plan jsonb
  contradictions integer not null default 0
  is_at_source boolean not null default false
  limit_wanted_at timestamp with time zone
  limit_polled_at timestamp with time zone
  last_tried_at timestamp with time zone
  constraint exports_party_id_asset_id_key UNIQUE NULLS NOT DISTINCT (party_id, asset_id)
  constraint exports_pkey PRIMARY KEY (export_id)

table mirror.generations
  generation_id bigint not null generated always as identity
  list text not null
  epoch integer not null
  kind text not null
  run_id uuid
  sequence bigint not null default 0
  resume_point jsonb
  last_pos bigint not null default 0
  rows bigint not null default 0
  pages bigint not null default 0
  claimed_pos bigint not null default 0
  claimed_rows bigint not null default 0
  head_height numeric(20,0)
  head_time timestamp with time zone
  is_append_only boolean not null default true
  started_at timestamp with time zone not null default clock_timestamp()
  claimed_at timestamp with time zone
  audited_at timestamp with time zone
  largest_rows bigint not null default 0
  confirmed_at timestamp with time zone
  constraint generations_check CHECK (((claimed_rows <= rows) OR (claimed_at IS NULL)))
  constraint generations_kind_check CHECK ((kind = ANY (ARRAY['current'::text, 'audit'::text])))
  constraint generations_largest_rows_check CHECK ((largest_rows >= 0))
  constraint generations_list_check CHECK ((list = ANY (ARRAY['parties'::text, 'checkpoints'::text])))
  constraint generations_list_epoch_kind_key UNIQUE (list, epoch, kind)
  constraint generations_pkey PRIMARY KEY (generation_id)
  constraint generations_rows_check CHECK ((rows >= 0))

table mirror.identity
  only_row boolean not null default true
  mirror_id uuid not null default gen_random_uuid()
  warehouse_id uuid not null default gen_random_uuid()
  source_url text
  publication_seq bigint not null default 0
  is_rebuilding boolean not null default false
  cursor_secret bytea not null default (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
  lock_seed bigint not null default hashtextextended((gen_random_uuid())::text, (0)::bigint)
  created_at timestamp with time zone not null default clock_timestamp()
  store_claim uuid
  store_mark uuid
  queue_id uuid not null default gen_random_uuid()
  home_oid text
  home_system text
  constraint identity_only_row_check CHECK (only_row)
  constraint identity_pkey PRIMARY KEY (only_row)

table mirror.lake_commits
  store text not null
  name text not null
  version bigint not null
  content bytea
  constraint lake_commits_pkey PRIMARY KEY (store, name)

table mirror.lake_proofs
  key text not null
  proven_at timestamp with time zone not null default clock_timestamp()
  constraint lake_proofs_pkey PRIMARY KEY (key)

table mirror.lake_tables
  name text not null
  table_id uuid not null
  version bigint not null
  build bigint not null
  built_at timestamp with time zone not null default clock_timestamp()
  constraint lake_tables_pkey PRIMARY KEY (name)

table mirror.ledger_entries partition by RANGE (vega_time)
  party_id text not null
  vega_time timestamp with time zone not null
  quantity numeric not null
  effect numeric
  transfer_type text not null
  asset_id text not null
  account_from_market_id text
  account_from_party_id text
  account_from_account_type text
  account_from_balance numeric
  account_to_market_id text
  account_to_party_id text
  account_to_account_type text
  account_to_balance numeric
  extra jsonb
  segment_id bigint not null

table mirror.list_gaps
  gap_id bigint not null generated always as identity
  list text not null
  epoch integer not null
  below_key text not null
  above_key text not null
  run_id uuid
  found_at timestamp with time zone not null default clock_timestamp()
  confirmed_by_run uuid
  closed_at timestamp with time zone
  constraint list_gaps_list_check CHECK ((list = ANY (ARRAY['parties'::text, 'checkpoints'::text])))
  constraint list_gaps_pkey PRIMARY KEY (gap_id)

table mirror.list_leases
  list text not null
  token uuid
  lease_until timestamp with time zone
  lease_holder integer
  constraint list_leases_list_check CHECK ((list = ANY (ARRAY['parties'::text, 'checkpoints'::text])))
  constraint list_leases_pkey PRIMARY KEY (list)

table mirror.migrations
  name character varying(255) not null
  "timestamp" character varying(255) not null
  constraint migrations_pkey PRIMARY KEY (name)

table mirror.migrations_lock
  id character varying(255) not null
  is_locked integer not null default 0
  constraint migrations_lock_pkey PRIMARY KEY (id)

table mirror.networks
  epoch integer not null
  started_at timestamp with time zone not null default clock_timestamp()
  evidence jsonb not null default '{}'::jsonb
  constraint networks_pkey PRIMARY KEY (epoch)

table mirror.nightly_scope
  only_row boolean not null default true
  party_ids text[]
  asset_ids text[]
  constraint nightly_scope_only_row_check CHECK (only_row)
  constraint nightly_scope_pkey PRIMARY KEY (only_row)

table mirror.nightly_units partition by LIST (run_id)
  run_id uuid not null
  party_id text not null
  priority integer not null
  is_idle boolean not null default false
  state text not null default 'due'::text
  outcome jsonb
  updated_at timestamp with time zone not null default clock_timestamp()
  constraint nightly_units_pkey PRIMARY KEY (run_id, party_id)
  constraint nightly_units_state_check CHECK ((state = ANY (ARRAY['due'::text, 'queued'::text, 'done'::text, 'failed'::text])))

table mirror.parties
  party_id text not null
  first_epoch integer not null
  first_seen_at timestamp with time zone not null default clock_timestamp()
  last_seen_at timestamp with time zone not null default clock_timestamp()
  extra jsonb
  epoch integer
  pos bigint
  gone_since timestamp with time zone
  restored_at timestamp with time zone
  constraint parties_epoch_pos_key UNIQUE (epoch, pos) DEFERRABLE
  constraint parties_pkey PRIMARY KEY (party_id) INCLUDE (epoch, gone_since)

table mirror.proof_ledgers
  party_id text not null
  asset_id text
  leaf text not null
  rows bigint not null
  covered jsonb not null
  file text not null
  at bigint not null
  bytes bigint not null
  constraint proof_ledgers_key UNIQUE NULLS NOT DISTINCT (party_id, asset_id)
  constraint proof_ledgers_leaf_check CHECK ((leaf ~ '^[0-9a-f]{64}$'::text))
  constraint proof_ledgers_rows_check CHECK ((rows >= 0))

table mirror.proof_log
  only_row boolean not null default true
  signing_key text
  key_name text
  size integer not null default 0
  root text
  statement_sha256 text
  settled_at timestamp with time zone
  public_key text
  constraint proof_log_only_row_check CHECK (only_row)
  constraint proof_log_pkey PRIMARY KEY (only_row)
  constraint proof_log_root_check CHECK ((root ~ '^[0-9a-f]{64}$'::text))
  constraint proof_log_size_check CHECK ((size >= 0))
  constraint proof_log_statement_sha256_check CHECK ((statement_sha256 ~ '^[0-9a-f]{64}$'::text))

table mirror.proof_pages
  hash text not null
  file text not null
  at bigint not null
  bytes bigint not null
  constraint proof_pages_hash_check CHECK ((hash ~ '^[0-9a-f]{64}$'::text))
  constraint proof_pages_pkey PRIMARY KEY (hash)

table mirror.publications
  publication_id uuid not null
  export_id bigint not null
  lease_token uuid not null
  plan jsonb not null
  state text not null default 'intent'::text
  created_at timestamp with time zone not null default clock_timestamp()
  constraint publications_export_id_fkey FOREIGN KEY (export_id) REFERENCES mirror.exports(export_id)
  constraint publications_pkey PRIMARY KEY (publication_id)
  constraint publications_state_check CHECK ((state = ANY (ARRAY['intent'::text, 'done'::text, 'dropped'::text])))

unlogged table mirror.rate_budgets
  budget text not null
  next_at timestamp with time zone not null
  constraint rate_budgets_pkey PRIMARY KEY (budget)

unlogged table mirror.resume_state
  key text not null
  value jsonb not null
  expires_at timestamp with time zone not null
  constraint resume_state_pkey PRIMARY KEY (key)

table mirror.run_keys
  name text not null
  hash text not null
  run_id uuid not null
  made_at timestamp with time zone not null default clock_timestamp()
  constraint run_keys_pkey PRIMARY KEY (name)
  constraint run_keys_run_id_fkey FOREIGN KEY (run_id) REFERENCES mirror.runs(run_id) ON DELETE CASCADE

table mirror.run_logs
  line_id bigint not null generated always as identity
  run_id uuid not null
  at timestamp with time zone not null
  level text not null
  message text not null
  fields jsonb not null
  constraint run_logs_pkey PRIMARY KEY (line_id)
  constraint run_logs_run_id_fkey FOREIGN KEY (run_id) REFERENCES mirror.runs(run_id) ON DELETE CASCADE

table mirror.runs
  run_id uuid not null
  parent_run_id uuid
  kind text not null
  subject text not null
  source_url text
  slot text
  params jsonb not null default '{}'::jsonb
  state text not null default 'queued'::text
  verdict text
  evidence jsonb not null default '{}'::jsonb
  queued_at timestamp with time zone not null default clock_timestamp()
  started_at timestamp with time zone
  heartbeat_at timestamp with time zone
  finished_at timestamp with time zone
  attempts integer not null default 0
  cancel_requested boolean not null default false
  job_id text
  constraint runs_check CHECK (((state = 'done'::text) = (verdict IS NOT NULL)))
  constraint runs_check1 CHECK (((state = ANY (ARRAY['done'::text, 'cancelled'::text])) = (finished_at IS NOT NULL)))
  constraint runs_kind_check CHECK ((kind = ANY (ARRAY['sync'::text, 'export'::text, 'load'::text, 'nightly'::text, 'verify'::text])))
  constraint runs_parent_run_id_fkey FOREIGN KEY (parent_run_id) REFERENCES mirror.runs(run_id)
  constraint runs_pkey PRIMARY KEY (run_id)
  constraint runs_slot_key UNIQUE (slot)
  constraint runs_state_check CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text, 'done'::text, 'cancelled'::text])))
  constraint runs_verdict_check CHECK ((verdict = ANY (ARRAY['complete'::text, 'incomplete'::text, 'suspicious'::text, 'failed'::text])))

table mirror.schedules
  name text not null
  pattern text not null
  tz text not null
  set_at timestamp with time zone not null default clock_timestamp()
  constraint schedules_pkey PRIMARY KEY (name)

table mirror.segment_months
  segment_id bigint not null
  month date not null
  rows bigint not null
  values_digest text not null
  constraint segment_months_month_check CHECK ((month = date_trunc('month'::text, (month)::timestamp with time zone)))
  constraint segment_months_pkey PRIMARY KEY (segment_id, month)
  constraint segment_months_segment_id_fkey FOREIGN KEY (segment_id) REFERENCES mirror.segments(segment_id)

table mirror.segment_proofs
  segment_id bigint not null
  proven_at timestamp with time zone not null default clock_timestamp()
  constraint segment_proofs_pkey PRIMARY KEY (segment_id)
  constraint segment_proofs_segment_id_fkey FOREIGN KEY (segment_id) REFERENCES mirror.segments(segment_id) ON DELETE CASCADE

table mirror.segments
  segment_id bigint not null generated always as identity
  party_id text not null
  asset_id text
  from_time timestamp with time zone not null
  to_time timestamp with time zone not null
  open boolean not null default false
  object_key text not null
  rows bigint not null
  bytes bigint not null
  sha256 text not null
  object_bytes bigint not null
  object_sha256 text not null
  digest text not null
  row_form text not null
  values_digest text
  columns text[] not null
  evidence jsonb not null default '{}'::jsonb
  status text not null default 'current'::text
  run_id uuid
  published_at timestamp with time zone not null default clock_timestamp()
  superseded_at timestamp with time zone
  removed_at timestamp with time zone
  loaded_at timestamp with time zone
  quarantine_reason jsonb
  constraint segments_check CHECK ((from_time < to_time))
  constraint segments_object_key_key UNIQUE (object_key)
  constraint segments_pkey PRIMARY KEY (segment_id)
  constraint segments_status_check CHECK ((status = ANY (ARRAY['current'::text, 'superseded'::text])))

table mirror.source_costs
  run_id uuid not null
  process_id uuid not null
  list_requests bigint not null
  export_requests bigint not null
  retries bigint not null
  failures bigint not null
  bytes bigint not null
  waited_ms bigint not null
  constraint source_costs_pkey PRIMARY KEY (run_id, process_id)
  constraint source_costs_run_id_fkey FOREIGN KEY (run_id) REFERENCES mirror.runs(run_id)

table mirror.source_log
  only_row boolean not null default true
  source_url text not null
  public_key text not null
  size integer not null
  root text not null
  constraint source_log_only_row_check CHECK (only_row)
  constraint source_log_pkey PRIMARY KEY (only_row)
  constraint source_log_root_check CHECK ((root ~ '^[0-9a-f]{64}$'::text))
  constraint source_log_size_check CHECK ((size >= 0))

table mirror.source_state
  only_row boolean not null default true
  ban_until timestamp with time zone
  profile jsonb not null default '{}'::jsonb
  constraint source_state_only_row_check CHECK (only_row)
  constraint source_state_pkey PRIMARY KEY (only_row)

table mirror.workers
  worker_id uuid not null
  name text not null
  queues text[] not null
  source_url text
  schedules jsonb not null default '{}'::jsonb
  started_at timestamp with time zone not null default clock_timestamp()
  heartbeat_at timestamp with time zone not null default clock_timestamp()
  constraint workers_pkey PRIMARY KEY (worker_id)

-- Indexes

CREATE INDEX coverage_beyond_manifests ON mirror.coverage USING btree (party_id, from_time) WHERE ((NOT open) AND ((segment_id IS NULL) OR differs_from_manifest))

CREATE INDEX coverage_by_party ON mirror.coverage USING btree (party_id, asset_id) INCLUDE (from_time, to_time, open, segment_id, checked_at)

CREATE INDEX coverage_of_segment ON mirror.coverage USING btree (segment_id)

CREATE INDEX exports_at_source ON mirror.exports USING btree (lease_until) WHERE is_at_source

CREATE INDEX exports_by_entry ON mirror.exports USING btree (last_entry_at DESC, export_id DESC) WHERE (last_entry_at IS NOT NULL)

CREATE INDEX exports_leased ON mirror.exports USING btree (lease_until) WHERE (lease_until IS NOT NULL)

CREATE INDEX exports_quarantined ON mirror.exports USING btree (quarantined_at) WHERE (quarantined_at IS NOT NULL)

CREATE INDEX exports_waiting ON mirror.exports USING btree (limit_wanted_at) WHERE (limit_wanted_at IS NOT NULL)

CREATE INDEX ledger_entries_by_asset ON ONLY mirror.ledger_entries USING btree (asset_id, vega_time)

CREATE INDEX ledger_entries_by_party ON ONLY mirror.ledger_entries USING btree (party_id, vega_time)

CREATE INDEX ledger_entries_by_segment ON ONLY mirror.ledger_entries USING btree (segment_id)

CREATE INDEX nightly_units_failed ON ONLY mirror.nightly_units USING btree (run_id, priority) WHERE (state = 'failed'::text)

CREATE INDEX nightly_units_open ON ONLY mirror.nightly_units USING btree (run_id, state, priority) WHERE (state = ANY (ARRAY['due'::text, 'queued'::text]))

CREATE INDEX parties_gone ON mirror.parties USING btree (party_id) WHERE (gone_since IS NOT NULL)

CREATE INDEX parties_own_ids ON mirror.parties USING btree (party_id) WHERE (((length(party_id) <> 64) OR (party_id ~ '[^0-9a-f]'::text)) AND (party_id <> 'network'::text))

CREATE INDEX publications_of_export ON mirror.publications USING btree (export_id)

CREATE INDEX resume_state_expired ON mirror.resume_state USING btree (expires_at)

CREATE INDEX run_logs_of_run ON mirror.run_logs USING btree (run_id, line_id)

CREATE INDEX runs_by_kind ON mirror.runs USING btree (kind, subject, queued_at DESC)

CREATE INDEX runs_by_time ON mirror.runs USING btree (queued_at DESC)

CREATE INDEX runs_open ON mirror.runs USING btree (state) WHERE (state = ANY (ARRAY['queued'::text, 'running'::text]))

CREATE INDEX segment_months_by_month ON mirror.segment_months USING btree (month)

CREATE INDEX segment_proofs_by_age ON mirror.segment_proofs USING btree (proven_at)

CREATE INDEX segments_by_party ON mirror.segments USING btree (party_id, from_time)

CREATE INDEX segments_by_publication ON mirror.segments USING btree (published_at DESC)

CREATE INDEX segments_current ON mirror.segments USING btree (party_id) INCLUDE (rows, bytes, loaded_at) WHERE (status = 'current'::text)

CREATE INDEX segments_quarantined ON mirror.segments USING btree (segment_id) WHERE (quarantine_reason IS NOT NULL)

CREATE INDEX segments_to_load ON mirror.segments USING btree (party_id) WHERE ((status = 'current'::text) AND (loaded_at IS NULL))

CREATE INDEX segments_to_unload ON mirror.segments USING btree (party_id) WHERE ((status = 'superseded'::text) AND (loaded_at IS NOT NULL))

CREATE UNIQUE INDEX doubts_open ON mirror.doubts USING btree (subject, epoch, code) WHERE (closed_at IS NULL)

CREATE UNIQUE INDEX runs_of_parent ON mirror.runs USING btree (parent_run_id, kind, subject) WHERE (parent_run_id IS NOT NULL)

-- Triggers

CREATE TRIGGER coverage_do_not_overlap AFTER INSERT OR UPDATE OF party_id, asset_id, from_time, to_time ON mirror.coverage FOR EACH ROW EXECUTE FUNCTION mirror.refuse_overlapping_coverage()

CREATE TRIGGER delete_audit_rows AFTER DELETE ON mirror.generations FOR EACH ROW EXECUTE FUNCTION mirror.delete_audit_rows()

CREATE TRIGGER segments_do_not_overlap AFTER INSERT OR UPDATE OF party_id, asset_id, from_time, to_time, status ON mirror.segments FOR EACH ROW WHEN ((new.status = 'current'::text)) EXECUTE FUNCTION mirror.refuse_overlapping_segments()

-- Views

mirror.activity as
 SELECT e.party_id,
    count(*) AS entries,
    count(DISTINCT (e.vega_time AT TIME ZONE 'UTC'::text)::date) AS active_days,
    min(e.vega_time) AS first_at,
    max(e.vega_time) AS last_at,
    bool_and('effect'::text = ANY (s.columns)) AS both_sides
   FROM mirror.ledger_entries e
     JOIN mirror.segments s USING (segment_id)
  GROUP BY e.party_id;

mirror.assets as
 SELECT asset_id,
    symbol,
    decimals
   FROM mirror.configured_assets;

mirror.balances as
 SELECT entries.account_from_party_id AS party_id,
    entries.account_from_account_type AS account_type,
    entries.account_from_market_id AS market_id,
    entries.asset_id,
    entries.vega_time,
    - entries.quantity AS change,
    entries.account_from_balance AS balance,
    entries.transfer_type,
    entries.segment_id,
    entries.sides = 'both'::text AS both_sides
   FROM mirror.entries
UNION ALL
 SELECT entries.account_to_party_id AS party_id,
    entries.account_to_account_type AS account_type,
    entries.account_to_market_id AS market_id,
    entries.asset_id,
    entries.vega_time,
    entries.quantity AS change,
    entries.account_to_balance AS balance,
    entries.transfer_type,
    entries.segment_id,
    entries.sides = 'both'::text AS both_sides
   FROM mirror.entries;

mirror.bi_entries as
 SELECT e.segment_id,
    e.party_id,
    e.vega_time,
    (e.vega_time AT TIME ZONE 'UTC'::text)::date AS day,
    date_trunc('month'::text, (e.vega_time AT TIME ZONE 'UTC'::text))::date AS month,
    e.transfer_type,
    e.asset_id,
    a.symbol AS asset_symbol,
        CASE
            WHEN abs(e.quantity) < '100000000000000000000000000000000000000'::numeric THEN e.quantity
            ELSE NULL::numeric
        END::numeric(38,0) AS quantity,
    e.quantity::text AS quantity_text,
    e.quantity * (('1e-'::text || a.decimals)::numeric) AS amount,
    e.account_from_market_id,
    e.account_from_party_id,
    e.account_from_account_type,
        CASE
            WHEN abs(e.account_from_balance) < '100000000000000000000000000000000000000'::numeric THEN e.account_from_balance
            ELSE NULL::numeric
        END::numeric(38,0) AS account_from_balance,
    e.account_from_balance::text AS account_from_balance_text,
    e.account_to_market_id,
    e.account_to_party_id,
    e.account_to_account_type,
        CASE
            WHEN abs(e.account_to_balance) < '100000000000000000000000000000000000000'::numeric THEN e.account_to_balance
            ELSE NULL::numeric
        END::numeric(38,0) AS account_to_balance,
    e.account_to_balance::text AS account_to_balance_text,
    e.sides,
    s.loaded_at
   FROM mirror.entries e
     JOIN mirror.segments s USING (segment_id)
     LEFT JOIN mirror.assets a ON a.asset_id = e.asset_id;

mirror.changed_months as
 WITH spans AS (
         SELECT segments.segment_id,
            segments.loaded_at,
            date_trunc('month'::text, (GREATEST(segments.from_time, held.first_at) AT TIME ZONE 'UTC'::text)) AS first_month,
            date_trunc('month'::text, (LEAST(segments.to_time, held.last_at) AT TIME ZONE 'UTC'::text)) AS last_month
           FROM mirror.segments,
            ( SELECT min(ledger_entries.vega_time) AS first_at,
                    max(ledger_entries.vega_time) AS last_at
                   FROM mirror.ledger_entries) held
          WHERE segments.loaded_at IS NOT NULL AND held.first_at IS NOT NULL
        )
 SELECT month.month::date AS month,
    max(spans.loaded_at) AS changed_at,
    count(*) AS segments,
    md5(string_agg((spans.segment_id || '@'::text) || EXTRACT(epoch FROM spans.loaded_at), ','::text ORDER BY spans.segment_id)) AS version
   FROM spans,
    LATERAL generate_series(spans.first_month, spans.last_month, '1 mon'::interval) month(month)
  GROUP BY month.month;

mirror.checkpoint_cadence as
 SELECT epoch,
    at_block,
    copies,
    hashes,
    at_block - lag(at_block) OVER (PARTITION BY epoch ORDER BY at_block) AS blocks_since_previous
   FROM ( SELECT checkpoints.epoch,
            checkpoints.at_block,
            sum(checkpoints.copies) AS copies,
            count(*) AS hashes
           FROM mirror.checkpoints
          GROUP BY checkpoints.epoch, checkpoints.at_block) heights;

mirror.checkpoint_list as
 SELECT epoch,
    at_block::numeric(38,0) AS at_block,
    at_block::text AS at_block_text,
    hash,
    block_hash,
    copies,
    first_seen_at,
    gone_since
   FROM mirror.checkpoints;

mirror.counterparties as
 SELECT v.party_id,
    v.counterparty_id,
    v.asset_id,
    v.entries,
    v.sent,
    v.received,
    v.first_at,
    v.last_at,
    v.both_sides,
    a.symbol AS asset_symbol,
    v.sent * (('1e-'::text || a.decimals)::numeric) AS sent_amount,
    v.received * (('1e-'::text || a.decimals)::numeric) AS received_amount
   FROM ( SELECT moved.party_id,
            moved.counterparty_id,
            moved.asset_id,
            count(*) AS entries,
            sum(moved.sent) AS sent,
            sum(moved.received) AS received,
            min(moved.vega_time) AS first_at,
            max(moved.vega_time) AS last_at,
            bool_and(moved.sides = 'both'::text) AS both_sides
           FROM ( SELECT entries.account_from_party_id AS party_id,
                    entries.account_to_party_id AS counterparty_id,
                    entries.asset_id,
                    entries.vega_time,
                    entries.quantity AS sent,
                    0::numeric AS received,
                    entries.sides
                   FROM mirror.entries
                UNION ALL
                 SELECT entries.account_to_party_id,
                    entries.account_from_party_id,
                    entries.asset_id,
                    entries.vega_time,
                    0,
                    entries.quantity,
                    entries.sides
                   FROM mirror.entries
                  WHERE entries.account_to_party_id IS DISTINCT FROM entries.account_from_party_id) moved
          GROUP BY moved.party_id, moved.counterparty_id, moved.asset_id) v
     LEFT JOIN mirror.assets a ON a.asset_id = v.asset_id;

mirror.entries as
 SELECT party_id,
    vega_time,
    quantity,
    effect,
    transfer_type,
    asset_id,
    account_from_market_id,
    account_from_party_id,
    account_from_account_type,
    account_from_balance,
    account_to_market_id,
    account_to_party_id,
    account_to_account_type,
    account_to_balance,
    extra,
    segment_id,
    sides
   FROM mirror.exported_entries
  WHERE is_counted;

mirror.exported_entries as
 SELECT e.party_id,
    e.vega_time,
    e.quantity,
    e.effect,
    e.transfer_type,
    e.asset_id,
    e.account_from_market_id,
    e.account_from_party_id,
    e.account_from_account_type,
    e.account_from_balance,
    e.account_to_market_id,
    e.account_to_party_id,
    e.account_to_account_type,
    e.account_to_balance,
    e.extra,
    e.segment_id,
        CASE
            WHEN 'effect'::text = ANY (s.columns) THEN 'both'::text
            ELSE 'from'::text
        END AS sides,
    e.party_id = e.account_from_party_id OR NOT (EXISTS ( SELECT
           FROM mirror.segments other
          WHERE other.party_id = e.account_from_party_id AND other.loaded_at IS NOT NULL AND other.from_time <= e.vega_time AND other.to_time > e.vega_time AND (other.asset_id IS NULL OR other.asset_id = e.asset_id))) AS is_counted
   FROM mirror.ledger_entries e
     JOIN mirror.segments s USING (segment_id);

mirror.fees_daily as
 SELECT v.day,
    v.party_id,
    v.asset_id,
    v.transfer_type,
    v.payments,
    v.paid,
    a.symbol AS asset_symbol,
    v.paid * (('1e-'::text || a.decimals)::numeric) AS amount
   FROM ( SELECT (entries.vega_time AT TIME ZONE 'UTC'::text)::date AS day,
            entries.account_from_party_id AS party_id,
            entries.asset_id,
            entries.transfer_type,
            count(*) AS payments,
            sum(entries.quantity) AS paid
           FROM mirror.entries
          WHERE entries.transfer_type ~~ '%\_FEE\_PAY'::text
          GROUP BY ((entries.vega_time AT TIME ZONE 'UTC'::text)::date), entries.account_from_party_id, entries.asset_id, entries.transfer_type) v
     LEFT JOIN mirror.assets a ON a.asset_id = v.asset_id;

mirror.flows_daily as
 SELECT v.day,
    v.asset_id,
    v.transfer_type,
    v.entries,
    v.quantity,
    v.both_sides,
    a.symbol AS asset_symbol,
    v.quantity * (('1e-'::text || a.decimals)::numeric) AS amount
   FROM ( SELECT (entries.vega_time AT TIME ZONE 'UTC'::text)::date AS day,
            entries.asset_id,
            entries.transfer_type,
            count(*) AS entries,
            sum(entries.quantity) AS quantity,
            bool_and(entries.sides = 'both'::text) AS both_sides
           FROM mirror.entries
          GROUP BY ((entries.vega_time AT TIME ZONE 'UTC'::text)::date), entries.asset_id, entries.transfer_type) v
     LEFT JOIN mirror.assets a ON a.asset_id = v.asset_id;

mirror.freshness as
 SELECT subject,
    as_of,
    clock_timestamp() - as_of AS age,
    items
   FROM ( SELECT 'list of '::text || generations.list AS subject,
            max(generations.claimed_at) AS as_of,
            sum(generations.rows)::bigint AS items
           FROM mirror.generations
          WHERE generations.kind = 'current'::text
          GROUP BY generations.list
        UNION ALL
         SELECT 'checkpoint last seen first'::text,
            max(checkpoints.first_seen_at) AS max,
            count(*) AS count
           FROM mirror.checkpoints
        UNION ALL
         SELECT 'ledger closed for every covered party'::text,
            min(closed.closed_to) AS min,
            count(*) AS count
           FROM ( SELECT coverage.party_id,
                    max(coverage.to_time) AS closed_to
                   FROM mirror.coverage
                  WHERE NOT coverage.open
                  GROUP BY coverage.party_id) closed
        UNION ALL
         SELECT 'latest ledger entry'::text,
            max(activity.last_at) AS max,
            sum(activity.entries)::bigint AS sum
           FROM mirror.activity
        UNION ALL
         SELECT 'latest load'::text,
            max(segments.loaded_at) AS max,
            count(segments.loaded_at) AS count
           FROM mirror.segments
          WHERE segments.status = 'current'::text
        UNION ALL
         SELECT 'segments not loaded yet'::text,
            min(segments.published_at) AS min,
            count(*) AS count
           FROM mirror.segments
          WHERE segments.status = 'current'::text AND segments.loaded_at IS NULL) subjects;

mirror.holders_monthly as
 SELECT v.month,
    v.asset_id,
    v.holders,
    v.accounts,
    v.held,
    v.unresolved,
    a.symbol AS asset_symbol,
    v.held * (('1e-'::text || a.decimals)::numeric) AS amount
   FROM ( WITH known AS (
                 SELECT balances.party_id,
                    balances.account_type,
                    balances.market_id,
                    balances.asset_id,
                    balances.vega_time,
                    balances.change,
                    balances.balance,
                    balances.transfer_type,
                    balances.segment_id,
                    balances.both_sides,
                    date_trunc('month'::text, (balances.vega_time AT TIME ZONE 'UTC'::text))::date AS month,
                    max(balances.vega_time) OVER (PARTITION BY balances.party_id, balances.asset_id, balances.account_type, balances.market_id, (date_trunc('month'::text, (balances.vega_time AT TIME ZONE 'UTC'::text)))) AS last_time
                   FROM mirror.balances
                  WHERE balances.balance IS NOT NULL AND balances.party_id <> 'network'::text
                ), closing AS (
                 SELECT known.party_id,
                    known.asset_id,
                    known.account_type,
                    known.market_id,
                    known.month,
                    min(known.balance) AS lowest,
                    max(known.balance) AS highest
                   FROM known
                  WHERE known.vega_time = known.last_time
                  GROUP BY known.party_id, known.asset_id, known.account_type, known.market_id, known.month
                ), spans AS (
                 SELECT closing.party_id,
                    closing.asset_id,
                    closing.account_type,
                    closing.market_id,
                    closing.month,
                    closing.lowest,
                    closing.highest,
                    lead(closing.month) OVER (PARTITION BY closing.party_id, closing.asset_id, closing.account_type, closing.market_id ORDER BY closing.month) AS next_month
                   FROM closing
                ), months AS (
                 SELECT generate_series(min(closing.month)::timestamp with time zone, max(closing.month)::timestamp with time zone, '1 mon'::interval)::date AS month
                   FROM closing
                )
         SELECT m.month,
            s.asset_id,
            count(DISTINCT s.party_id) FILTER (WHERE s.highest > 0::numeric) AS holders,
            count(*) FILTER (WHERE s.highest > 0::numeric) AS accounts,
            COALESCE(sum(s.highest) FILTER (WHERE s.highest > 0::numeric), 0::numeric) AS held,
            count(*) FILTER (WHERE s.lowest <> s.highest) AS unresolved
           FROM months m
             JOIN spans s ON s.month <= m.month AND (s.next_month IS NULL OR m.month < s.next_month)
          GROUP BY m.month, s.asset_id) v
     LEFT JOIN mirror.assets a ON a.asset_id = v.asset_id;

mirror.last_activity as
 SELECT party_id,
    COALESCE(activity.entries, 0::bigint) AS entries,
    activity.last_at
   FROM mirror.activity
     FULL JOIN ( SELECT parties.party_id
           FROM mirror.parties) listed USING (party_id)
  WHERE party_id <> 'network'::text;

mirror.latest_balances as
 WITH last_block AS (
         SELECT b.party_id,
            b.account_type,
            b.market_id,
            b.asset_id,
            b.vega_time,
            b.change,
            b.balance,
            b.transfer_type,
            b.segment_id,
            b.both_sides,
            max(b.vega_time) OVER (PARTITION BY b.party_id, b.account_type, b.market_id, b.asset_id) AS last_time
           FROM mirror.balances b
          WHERE b.balance IS NOT NULL
        ), steps AS (
         SELECT last_block.party_id,
            last_block.account_type,
            last_block.market_id,
            last_block.asset_id,
            last_block.vega_time,
            last_block.balance,
            last_block.balance - last_block.change AS former
           FROM last_block
          WHERE last_block.vega_time = last_block.last_time
        ), visits AS (
         SELECT visited.party_id,
            visited.account_type,
            visited.market_id,
            visited.asset_id,
            visited.vega_time,
            visited.value,
            sum(visited.arrived) AS surplus,
            max(visited.arrived) AS is_end
           FROM ( SELECT steps.party_id,
                    steps.account_type,
                    steps.market_id,
                    steps.asset_id,
                    steps.vega_time,
                    steps.balance AS value,
                    1 AS arrived
                   FROM steps
                UNION ALL
                 SELECT steps.party_id,
                    steps.account_type,
                    steps.market_id,
                    steps.asset_id,
                    steps.vega_time,
                    steps.former,
                    '-1'::integer
                   FROM steps) visited
          GROUP BY visited.party_id, visited.account_type, visited.market_id, visited.asset_id, visited.vega_time, visited.value
        ), ends AS (
         SELECT visits.party_id,
            visits.account_type,
            visits.market_id,
            visits.asset_id,
            visits.vega_time,
            count(*) FILTER (WHERE visits.is_end = 1) AS candidates,
            count(*) FILTER (WHERE visits.surplus > 0) AS surpluses,
            sum(visits.surplus) FILTER (WHERE visits.surplus > 0) AS surplus,
            min(visits.value) FILTER (WHERE visits.surplus > 0) AS surplus_value,
            min(visits.value) FILTER (WHERE visits.is_end = 1) AS lowest,
            max(visits.value) FILTER (WHERE visits.is_end = 1) AS highest
           FROM visits
          GROUP BY visits.party_id, visits.account_type, visits.market_id, visits.asset_id, visits.vega_time
        ), resolved AS (
         SELECT ends.party_id,
            ends.account_type,
            ends.market_id,
            ends.asset_id,
            ends.vega_time,
            ends.candidates,
            ends.surpluses,
            ends.surplus,
            ends.surplus_value,
            ends.lowest,
            ends.highest,
                CASE
                    WHEN ends.candidates = 1 THEN ends.lowest
                    WHEN ends.surpluses = 1 AND ends.surplus = 1::numeric THEN ends.surplus_value
                    ELSE NULL::numeric
                END AS exact
           FROM ends
        )
 SELECT r.party_id,
    r.account_type,
    r.market_id,
    r.asset_id,
    a.symbol AS asset_symbol,
    r.vega_time AS as_of,
    r.exact IS NOT NULL AS is_resolved,
        CASE
            WHEN abs(r.exact) < '100000000000000000000000000000000000000'::numeric THEN r.exact
            ELSE NULL::numeric
        END::numeric(38,0) AS balance,
    r.exact::text AS balance_text,
    r.exact * (('1e-'::text || a.decimals)::numeric) AS amount,
        CASE
            WHEN abs(r.lowest) < '100000000000000000000000000000000000000'::numeric THEN r.lowest
            ELSE NULL::numeric
        END::numeric(38,0) AS lowest,
        CASE
            WHEN abs(r.highest) < '100000000000000000000000000000000000000'::numeric THEN r.highest
            ELSE NULL::numeric
        END::numeric(38,0) AS highest,
    r.candidates
   FROM resolved r
     LEFT JOIN mirror.assets a USING (asset_id);

mirror.market_fees_monthly as
 SELECT v.month,
    v.market_id,
    v.asset_id,
    v.transfer_type,
    v.payments,
    v.payers,
    v.paid,
    a.symbol AS asset_symbol,
    v.paid * (('1e-'::text || a.decimals)::numeric) AS amount
   FROM ( SELECT date_trunc('month'::text, (entries.vega_time AT TIME ZONE 'UTC'::text))::date AS month,
            COALESCE(entries.account_from_market_id, entries.account_to_market_id) AS market_id,
            entries.asset_id,
            entries.transfer_type,
            count(*) AS payments,
            count(DISTINCT entries.account_from_party_id) AS payers,
            sum(entries.quantity) AS paid
           FROM mirror.entries
          WHERE entries.transfer_type ~~ '%\_FEE\_PAY'::text
          GROUP BY (date_trunc('month'::text, (entries.vega_time AT TIME ZONE 'UTC'::text))::date), (COALESCE(entries.account_from_market_id, entries.account_to_market_id)), entries.asset_id, entries.transfer_type) v
     LEFT JOIN mirror.assets a ON a.asset_id = v.asset_id;

mirror.party_list as
 SELECT party_id,
    epoch,
    first_seen_at,
    last_seen_at,
    gone_since
   FROM mirror.parties;

mirror.payments_monthly as
 SELECT v.month,
    v.payer,
    v.payee,
    v.asset_id,
    v.entries,
    v.quantity,
    v.first_at,
    v.last_at,
    a.symbol AS asset_symbol,
    v.quantity * (('1e-'::text || a.decimals)::numeric) AS amount
   FROM ( SELECT date_trunc('month'::text, (entries.vega_time AT TIME ZONE 'UTC'::text))::date AS month,
            entries.account_from_party_id AS payer,
            entries.account_to_party_id AS payee,
            entries.asset_id,
            count(*) AS entries,
            sum(entries.quantity) AS quantity,
            min(entries.vega_time) AS first_at,
            max(entries.vega_time) AS last_at
           FROM mirror.entries
          WHERE entries.account_from_party_id IS DISTINCT FROM entries.account_to_party_id
          GROUP BY (date_trunc('month'::text, (entries.vega_time AT TIME ZONE 'UTC'::text))::date), entries.account_from_party_id, entries.account_to_party_id, entries.asset_id) v
     LEFT JOIN mirror.assets a ON a.asset_id = v.asset_id;

mirror.run_list as
 SELECT run_id,
    parent_run_id,
    kind,
    subject,
    state,
    verdict,
    queued_at,
    started_at,
    finished_at,
    EXTRACT(epoch FROM finished_at - started_at)::bigint AS seconds,
    evidence::text AS evidence_json
   FROM mirror.runs;

mirror.segment_list as
 SELECT segment_id,
    party_id,
    asset_id,
    from_time,
    to_time,
    open,
    object_key,
    rows,
    bytes,
    sha256,
    object_bytes,
    object_sha256,
    digest,
    columns,
    'effect'::text = ANY (columns) AS both_sides,
    status,
    run_id,
    published_at,
    loaded_at
   FROM mirror.segments;

mirror.source_freshness as
 SELECT key,
    as_of
   FROM ( SELECT 'nightly_complete'::text AS key,
            max(runs.finished_at) AS as_of
           FROM mirror.runs
          WHERE runs.kind = 'nightly'::text AND runs.verdict = 'complete'::text
        UNION ALL
         SELECT 'nightly_ended'::text,
            max(runs.finished_at) AS max
           FROM mirror.runs
          WHERE runs.kind = 'nightly'::text AND runs.state = 'done'::text
        UNION ALL
         SELECT 'latest_load'::text,
            max(segments.loaded_at) AS max
           FROM mirror.segments
        UNION ALL
         SELECT 'latest_entry'::text,
            max(ledger_entries.vega_time) AS max
           FROM mirror.ledger_entries
        UNION ALL
         SELECT 'latest_checkpoint'::text,
            max(checkpoints.first_seen_at) AS max
           FROM mirror.checkpoints
        UNION ALL
         SELECT 'latest_party'::text,
            max(parties.first_seen_at) AS max
           FROM mirror.parties) known;

mirror.statement_lines as
 SELECT v.party_id,
    v.vega_time,
    v.asset_id,
    v.account_type,
    v.market_id,
    v.transfer_type,
    v.counterparty_id,
    v.change,
    v.balance,
    a.symbol AS asset_symbol,
    v.change * (('1e-'::text || a.decimals)::numeric) AS amount,
    v.balance * (('1e-'::text || a.decimals)::numeric) AS balance_amount
   FROM ( SELECT entries.account_from_party_id AS party_id,
            entries.vega_time,
            entries.asset_id,
            entries.account_from_account_type AS account_type,
            entries.account_from_market_id AS market_id,
            entries.transfer_type,
            entries.account_to_party_id AS counterparty_id,
            - entries.quantity AS change,
            entries.account_from_balance AS balance
           FROM mirror.entries
        UNION ALL
         SELECT entries.account_to_party_id AS party_id,
            entries.vega_time,
            entries.asset_id,
            entries.account_to_account_type AS account_type,
            entries.account_to_market_id AS market_id,
            entries.transfer_type,
            entries.account_from_party_id AS counterparty_id,
            entries.quantity AS change,
            entries.account_to_balance AS balance
           FROM mirror.entries) v
     LEFT JOIN mirror.assets a ON a.asset_id = v.asset_id;

-- Rights of mirror_reader

select on mirror.activity

select on mirror.assets

select on mirror.balances

select on mirror.bi_entries

select on mirror.changed_months

select on mirror.checkpoint_cadence

select on mirror.checkpoint_list

select on mirror.counterparties

select on mirror.entries

select on mirror.exported_entries

select on mirror.fees_daily

select on mirror.flows_daily

select on mirror.freshness

select on mirror.holders_monthly

select on mirror.last_activity

select on mirror.latest_balances

select on mirror.market_fees_monthly

select on mirror.party_list

select on mirror.payments_monthly

select on mirror.run_list

select on mirror.segment_list

select on mirror.source_freshness

select on mirror.statement_lines

usage on schema mirror
