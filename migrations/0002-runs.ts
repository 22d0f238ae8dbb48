/** Every run with its verdict and its cost, the nightly plan, and the workers. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `create table mirror.runs (
    run_id uuid primary key,
    parent_run_id uuid references mirror.runs,
    kind text not null check (kind in ('sync', 'export', 'load', 'nightly', 'verify')),
    subject text not null,
    source_url text,
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
    job_id text,
    check ((state = 'done') = (verdict is not null)),
    check ((state in ('done', 'cancelled')) = (finished_at is not null)))`,
  'create index runs_by_time on mirror.runs (queued_at desc)',
  'create index runs_by_kind on mirror.runs (kind, subject, queued_at desc)',
  `create index runs_open on mirror.runs (state) where state in ('queued', 'running')`,
  // A resumed run finds the runs that it started before.
  'create unique index runs_of_parent on mirror.runs (parent_run_id, kind, subject) where parent_run_id is not null',

  // Log lines of a run, from whichever process; kept as long as the run.
  `create table mirror.run_logs (
    line_id bigint generated always as identity primary key,
    run_id uuid not null references mirror.runs on delete cascade,
    at timestamptz not null,
    level text not null,
    message text not null,
    fields jsonb not null)`,
  'create index run_logs_of_run on mirror.run_logs (run_id, line_id)',

  // Recognises an order that is sent again, by the name that its client gave it and a
  // hash of its contents.
  `create table mirror.run_keys (
    name text primary key,
    hash text not null,
    run_id uuid not null references mirror.runs on delete cascade,
    made_at timestamptz not null default clock_timestamp())`,

  // Long-lived processes that work jobs. A command checks this table before it works
  // its job itself.
  `create table mirror.workers (
    worker_id uuid primary key,
    name text not null,
    queues text[] not null,
    source_url text,
    schedules jsonb not null default '{}',
    started_at timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp())`,
  // When the schedules in force were set. A time that was due before then does not
  // count as missed.
  `create table mirror.schedules (
    name text primary key,
    pattern text not null,
    tz text not null,
    set_at timestamptz not null default clock_timestamp())`,
  // The scope of nightly runs, as the last one was configured. Null parties: every
  // party of the list. Null assets: the configuration names none, so ledgers are exported
  // with every asset.
  `create table mirror.nightly_scope (
    only_row boolean primary key default true check (only_row),
    party_ids text[],
    asset_ids text[])`,
  'insert into mirror.nightly_scope default values',
  // The requests that each run made to the source. Each process that works on a run
  // has its own row, so that none waits for another.
  `create table mirror.source_costs (
    run_id uuid not null references mirror.runs,
    process_id uuid not null,
    list_requests bigint not null,
    export_requests bigint not null,
    retries bigint not null,
    failures bigint not null,
    bytes bigint not null,
    waited_ms bigint not null,
    primary key (run_id, process_id))`,
  // The ledgers that a nightly run requests are stored here and not in the queue,
  // because the verdict is computed from them. Each run has its own partition, which has
  // its own statistics and can be dropped as a whole.
  `create table mirror.nightly_units (
    run_id uuid not null,
    party_id text not null,
    priority int not null,
    is_idle boolean not null default false,
    state text not null default 'due' check (state in ('due', 'queued', 'done', 'failed')),
    outcome jsonb,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (run_id, party_id)) partition by list (run_id)`,
  `create index nightly_units_open on mirror.nightly_units (run_id, state, priority) where state in ('due', 'queued')`,
  `create index nightly_units_failed on mirror.nightly_units (run_id, priority) where state = 'failed'`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
