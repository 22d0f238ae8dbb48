/**
 * The console's statements about the mirror's work: what is running, published and
 * quarantined.
 */
import { WORKER_SILENT_MS } from '../../../concurrency/lease.ts';
import {
  onlyRow,
  type PlainRow,
  type Rows,
} from '../../../postgres/api-rows.ts';
import {
  type RowOf,
  statement,
  type Statement,
  typed,
} from '../../../postgres/statement.ts';

const LINES_MAX = 16;

/**
 * The work in progress, from one consistent read whose cost does not depend on the size
 * of the mirror.
 */
export interface LiveFacts extends PlainRow {
  /** The number of worker processes with a recent heartbeat. */
  readonly workers: number;
  /** Unfinished runs, oldest first; at most as many as a page can show. */
  readonly openRuns: readonly (PlainRow &
    Readonly<{ runId: string; state: string; parentRunId: string | null }>)[];
  /**
   * Exports in progress: first those with a request at the source, then those that are
   * waiting for a slot.
   */
  readonly inFlight: readonly (PlainRow & { readonly partyId: string })[];
}

/**
 * A single statement, so that all parts describe the same instant. Each part uses an
 * index.
 */
const LIVE = statement({ found: typed<LiveFacts>('json') })`
  with open_runs as (
    select * from mirror.runs where state in ('queued', 'running')
    order by queued_at, run_id limit 24),
  nightly as (select run_id from open_runs where kind = 'nightly' limit 1),
  quarantined as (
    select export_id, party_id, asset_id, quarantined_at, attempts, quarantine_reason
    from mirror.exports
    where quarantined_at is not null order by quarantined_at desc limit 5)
  select json_build_object(
    'now', clock_timestamp(),
    'workers', (
      select count(*) from mirror.workers
      where heartbeat_at > clock_timestamp() - ${WORKER_SILENT_MS} * interval '1 millisecond'),
    'openRuns', (
      select coalesce(json_agg(json_build_object(
        'runId', run_id, 'parentRunId', parent_run_id, 'kind', kind,
        'subject', subject, 'state', state, 'verdict', verdict, 'queuedAt', queued_at,
        'startedAt', started_at, 'finishedAt', finished_at,
        'attempts', attempts) order by queued_at), '[]') from open_runs),
    'inFlight', (
      select coalesce(json_agg(json_build_object(
        'partyId', party_id, 'assetId', asset_id, 'isAtSource', is_at_source)), '[]')
      from (
        select party_id, asset_id, is_at_source from mirror.exports
        where lease_until > clock_timestamp()
        order by is_at_source desc, lease_until limit 16) leased),
    'quarantined', (
      select coalesce(json_agg(json_build_object(
        'exportId', export_id::text, 'partyId', party_id,
        'assetId', asset_id, 'since', quarantined_at, 'attempts', attempts,
        'reason', quarantine_reason)), '[]') from quarantined),
    'nightly', (
      select json_build_object('runId', run_id, 'waiting', waiting, 'failed', failed,
        'done', (plan->>'asked')::bigint - waiting - failed,
        'deferred', plan->'deferred', 'firstAt', first_at)
      from nightly
      cross join lateral (
        select params->'plan' as plan from mirror.runs where run_id = nightly.run_id) planned
      cross join lateral (
        select
          (select count(*) from mirror.nightly_units
            where run_id = nightly.run_id and state in ('due', 'queued')) as waiting,
          (select count(*) from mirror.nightly_units
            where run_id = nightly.run_id and state = 'failed') as failed) open
      cross join lateral (
        select max(finished_at) as first_at from mirror.runs
        where parent_run_id = nightly.run_id and kind = 'sync') lists
      where plan is not null),
    'revision', md5(concat((select publication_seq from mirror.identity), (
      select string_agg(run_id::text || state, ',') from (
        select run_id, state from mirror.runs
        order by queued_at desc limit 50) last)))) as found`;

/**
 * Selects the ledgers with an export in progress first, then the quarantined ones, then
 * the ones published most recently.
 */
export const LINES = statement({
  partyId: 'text',
  assetId: 'text?',
  state: 'text',
  firstEntryAt: 'instant?',
  covered: 'json',
})`
  with chosen as (
    (select party_id, asset_id, 1 as rank, 'in flight' as state, lease_until as at
      from mirror.exports
      where lease_until > clock_timestamp() order by lease_until limit 8)
    union all
    (select party_id, asset_id, 2, 'quarantined', quarantined_at from mirror.exports
      where quarantined_at is not null order by quarantined_at desc limit 8)
    union all
    (select party_id, asset_id, 3, 'published', published_at from mirror.segments
      where status = 'current' order by published_at desc limit ${LINES_MAX})),
  ledgers as (
    select distinct on (party_id, asset_id) * from chosen order by party_id, asset_id, rank),
  shown as (select * from ledgers order by rank, at desc limit ${LINES_MAX})
  select party_id as "partyId", asset_id as "assetId", state,
    (select min(vega_time) from mirror.ledger_entries e
      where e.party_id = shown.party_id) as "firstEntryAt",
    (select coalesce(json_agg(json_build_object('from', from_time, 'to', to_time,
        'open', open, 'rows', rows) order by from_time), '[]')
      from (
        select c.from_time, c.to_time, c.open, s.rows::text as rows
        from mirror.coverage c left join mirror.segments s using (segment_id)
        where c.party_id = shown.party_id and (
          c.asset_id is null or shown.asset_id is null or c.asset_id = shown.asset_id)
        order by c.from_time desc limit 60) known) as covered
  from shown order by rank, at desc`;

/**
 * The rows published over time, in equal intervals, so that the chart is as readable
 * after the first nightly run as after a year.
 */
export const GROWTH = statement({
  at: 'instant',
  rows: 'text',
  bytes: 'text',
})`
  with bounds as (
    select min(published_at) as first,
      greatest(extract(epoch from max(published_at) - min(published_at)) / 120, 1) as step
    from mirror.segments)
  select date_bin(make_interval(secs => step), published_at, first) as at,
    sum(rows)::text as rows, sum(bytes)::text as bytes
  from mirror.segments, bounds where status = 'current' group by 1 order by 1`;

export const NIGHTLY_RUNS = statement({
  runId: 'uuid',
  at: 'instant',
  finishedAt: 'instant?',
  state: 'text',
  verdict: 'text?',
})`
  select run_id as "runId", coalesce(started_at, queued_at) as at,
    finished_at as "finishedAt", state, verdict
  from mirror.runs
  where kind = 'nightly' and queued_at > clock_timestamp() - interval '120 days'
  order by queued_at desc limit 1000`;

const QUARANTINED_COLUMNS = {
  exportId: 'text',
  partyId: 'text',
  assetId: 'text?',
  since: 'instant!',
  attempts: 'int',
  reason: 'json?',
} as const;

/** Selects the quarantined exports, latest first. */
export function quarantined(
  limit: number,
): Statement<RowOf<typeof QUARANTINED_COLUMNS>> {
  return statement(QUARANTINED_COLUMNS)`
  select export_id::text as "exportId", party_id as "partyId", asset_id as "assetId",
    quarantined_at as since, attempts, quarantine_reason as reason
  from mirror.exports
  where quarantined_at is not null order by quarantined_at desc, export_id desc limit ${limit}`;
}

/**
 * The first row has the costs of the run itself, the others those of its child runs.
 * Counts are decimal strings.
 */
const COST_COLUMNS = {
  kind: 'text',
  subject: 'text',
  startedMs: 'float?',
  endedMs: 'float',
  requests: 'text',
  listRequests: 'text',
  retries: 'text',
  bytes: 'text',
} as const;
type CostRow = RowOf<typeof COST_COLUMNS>;

function costsOf(runId: string): Statement<CostRow> {
  return statement(COST_COLUMNS)`
  select r.kind, r.subject,
    (extract(epoch from r.started_at) * 1000)::float8 as "startedMs",
    (extract(epoch from coalesce(r.finished_at, clock_timestamp())) * 1000)::float8
      as "endedMs",
    coalesce(sum(c.list_requests + c.export_requests), 0)::text as requests,
    coalesce(sum(c.list_requests), 0)::text as "listRequests",
    coalesce(sum(c.retries), 0)::text as retries, coalesce(sum(c.bytes), 0)::text as bytes
  from mirror.runs r left join mirror.source_costs c using (run_id)
  where r.run_id = ${runId}::uuid or r.parent_run_id = ${runId}::uuid
  group by r.run_id order by r.run_id <> ${runId}::uuid, r.queued_at`;
}

export async function readLive(rows: Rows): Promise<LiveFacts> {
  return (await onlyRow(rows('read what is going on', LIVE))).found;
}

/**
 * Returns how many requests each stage of a run sent to the source, and how long the
 * stage took, in the order of the stages. An unknown run has no stages.
 */
export async function readCosts(
  rows: Rows,
  runId: string,
): Promise<readonly PlainRow[]> {
  const [own, ...found] = await rows('read what a run cost', costsOf(runId));
  if (own === undefined) return [];
  if (own.kind !== 'nightly') return [costOf(own, own.kind)];
  const syncs = ['parties', 'checkpoints'].flatMap((list) =>
    found.filter(({ kind, subject }) => kind === 'sync' && subject === list),
  );
  const load = found.find(({ kind }) => kind === 'load');
  const listsEndedMs = Math.max(
    ...syncs.map(({ endedMs }) => endedMs),
    own.startedMs ?? own.endedMs,
  );
  const extra =
    own.listRequests === '0'
      ? ''
      : `, and ${own.listRequests} for the source’s time`;
  const none = { requests: '0', retries: '0', bytes: '0' };
  return [
    ...syncs.map((row) => costOf(row, row.subject)),
    // Requests that the nightly run itself sends count for the exports. This stage lies
    // between the syncs of the lists and the load.
    costOf(
      {
        ...own,
        startedMs: listsEndedMs,
        endedMs: load?.startedMs ?? own.endedMs,
      },
      `exports${extra}`,
    ),
    ...(load === undefined
      ? []
      : [
          costOf(load, 'load'),
          costOf({ ...own, ...none, startedMs: load.endedMs }, 'verify'),
        ]),
  ];
}

function costOf(
  { startedMs, endedMs, requests, retries, bytes }: CostRow,
  stage: string,
) {
  const seconds =
    startedMs === null
      ? 0
      : Math.max(0, Math.round(endedMs - startedMs) / 1_000);
  return { stage, requests, retries, bytes, seconds };
}
