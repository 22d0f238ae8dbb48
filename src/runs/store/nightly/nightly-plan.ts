/**
 * Decides which ledgers a nightly run requests: the rule for which parties are due, and
 * the plan, the preview and the estimate that follow from it.
 */
import { sql } from 'kysely';
import { NETWORK_PARTY } from '../../../ledger/ids.ts';
import type { Database } from '../../../postgres/database.ts';
import { builder } from '../../../postgres/builder.ts';
import {
  execute,
  findRow,
  readRow,
  readRows,
} from '../../../postgres/run-statement.ts';
import { statement, typed } from '../../../postgres/statement.ts';
import { inTransaction } from '../../../postgres/transaction.ts';
import {
  type ConfiguredScope,
  recordScope,
} from '../../../status/store/completeness.ts';

/** The parties and assets that a nightly run covers. */
export interface NightlyScope extends ConfiguredScope {
  /**
   * True if every party is requested every night; false if idle ones are requested only
   * after a growing number of nights.
   */
  readonly everyParty: boolean;
  /** Maximum number of nights that an idle party waits. */
  readonly idleNightsMax: number;
}

/**
 * Condition on `mirror.exports`: the export covers the whole ledger of its party. That is
 * the export of all assets or, if the source requires an asset, the export of each
 * configured one. Any other asset that was exported on demand says nothing about the
 * rest.
 */
function concernsLedger(assetIds: NightlyScope['assetIds']) {
  const configured = assetIds === undefined ? null : [...assetIds];
  return sql`(asset_id is null
    or (${configured}::text[] is null or asset_id = any(${configured}::text[]))
      and exists (
        select from mirror.source_state where profile @> '{"assetRequired": true}'))`;
}

/** Subquery: what is recorded about each party whose ledger has been requested. */
function selectAsked({ assetIds }: Pick<NightlyScope, 'assetIds'>) {
  return sql`
  select party_id, max(last_asked_at) as last_asked_at,
    max(greatest(last_asked_at, last_tried_at)) as last_turn_at,
    max(last_entry_at) as last_entry_at,
    min(idle_nights) filter (where last_asked_at is not null) as idle_nights,
    max(quarantined_at) as quarantined_at
  from mirror.exports
  where ${concernsLedger(assetIds)}
  group by party_id`;
}

/**
 * One turn in this many goes to ledgers that keep failing, and one in `NEW_EVERY` to
 * ledgers never requested, so that neither group holds up the active ones.
 */
const QUARANTINED_EVERY = 10;
const NEW_EVERY = 3;

/**
 * Common table expression: `ids`, the parties that a nightly run may request, each once.
 * Without configured parties these are the listed ones. A party that the source no longer
 * lists, or listed only in an earlier epoch, is left out, because its ledger may fail
 * forever and nothing is expected from it (see `removed` in
 * status/store/completeness.ts).
 */
function selectPartyIds(partyIds: NightlyScope['partyIds']) {
  const chosen = partyIds === undefined ? null : [...partyIds];
  return sql`ids as not materialized (
      select party_id from mirror.parties
      where ${chosen}::text[] is null and party_id <> ${NETWORK_PARTY}
        and gone_since is null
        and (epoch is null or epoch = (select max(epoch) from mirror.networks))
      union all
      select distinct party_id from unnest(${chosen}::text[]) party_id
      where party_id <> ${NETWORK_PARTY})`;
}

/**
 * Common table expressions: `ids`, and `considered`, which adds whether each party is due
 * and how urgently.
 */
function consideredParties(scope: NightlyScope) {
  const { partyIds, everyParty, idleNightsMax } = scope;
  return sql`${selectPartyIds(partyIds)},
    known as (
      select ids.party_id, asked.last_asked_at, asked.last_turn_at,
        case
          when asked.quarantined_at is not null then 1
          when asked.last_asked_at is null then 2
          when asked.last_entry_at > now() - interval '7 days' then 3
          when named.party_id is not null then 4
          else 5 end as rank,
        asked.last_asked_at
          + least(2 ^ least(asked.idle_nights, 10), ${idleNightsMax}) * interval '1 day'
          - (abs(hashtext(ids.party_id)) % 24 + 1) * interval '1 hour' as due_at
      from ids
      left join (${selectAsked(scope)}) asked on asked.party_id = ids.party_id
      left join (
        select account_to_party_id as party_id from mirror.ledger_entries
        where not ${everyParty} and vega_time > now() - interval '3 days'
        union
        select party_id from mirror.segments
        where status = 'current' and quarantine_reason is not null) named
        on named.party_id = ids.party_id),
    considered as (
      select party_id, rank, last_asked_at, last_turn_at,
        ${everyParty} or rank < 5 or due_at < now() as is_due
      from known)`;
}

/** Adds the common table expression `due`, the parties to request, in order. */
function dueParties(scope: NightlyScope) {
  return sql`${consideredParties(scope)},
    due as (
      select party_id, rank, last_asked_at,
        row_number() over (
          order by rank = 5, turn, rank, last_turn_at nulls first, party_id)::int as priority
      from (
        select party_id, rank, last_asked_at, last_turn_at,
          row_number() over (partition by rank order by last_turn_at nulls first, party_id)
            * case rank
              when 1 then ${QUARANTINED_EVERY}::int
              when 2 then ${NEW_EVERY}::int
              else 1 end as turn
        from considered where is_due) ranked)`;
}

/** How many parties a nightly run requests, and how many it leaves out. */
interface Plan {
  /** All parties in the run's scope, requested or not. */
  readonly parties: number;
  readonly notDue: number;
  /** Parties to request in this run. */
  readonly asked: number;
  /**
   * Due parties that are left for another run, because a run may request only a limited
   * number.
   */
  readonly deferred: number;
  /** Deferred parties that were never requested. */
  readonly deferredNeverAsked: number;
  /** When the longest-waiting deferred party was last requested; RFC 3339. */
  readonly deferredSince: string | null;
}

/** How out of date the longest-waiting ledgers are. */
interface Lateness {
  /**
   * Parties in the run's scope whose last request is longer ago than an idle party may
   * wait.
   */
  readonly late: number;
  /** The earliest point at which the known part of any ledger ends; RFC 3339. */
  readonly oldestFrontier: string | null;
}

/** What can be estimated about a run before it makes requests. */
export interface Estimate {
  readonly parties: number;
  readonly quarantined: number;
  /** True if no list has been read yet, so the parties are unknown. */
  readonly isFirst: boolean;
  /**
   * Average time from one export to the next, in the last nightly run that exported
   * anything.
   */
  readonly secondsPerExport: number | null;
}

/**
 * Writes the parties that the run requests into a partition of their own, and records
 * which are left out. This happens once; a resumed run finds both. `dueParties` sets the
 * order, and parties beyond `exportsMax` wait for another night. Skipping an idle party
 * loses nothing, because its next request starts where the last one ended.
 */
export async function planNightly(
  db: Database,
  request: NightlyScope & { runId: string; exportsMax: number | undefined },
): Promise<Plan> {
  const { runId, exportsMax = null } = request;
  const isDeferred = sql`priority > ${exportsMax}::bigint`;
  const recorded = statement({ plan: typed<Plan | null>('json?') })`
    select params->'plan' as plan from mirror.runs where run_id = ${runId}`;
  const run = await findRow(db, 'read the plan of the nightly run', recorded);
  if (run?.plan) return run.plan;
  const action = 'plan the nightly run';
  const plan = await inTransaction(db, { action, retries: 0 }, async (tx) => {
    const lock = statement({ lock: 'void' })`
        select pg_advisory_xact_lock(mirror.lock_key('nightly plan')) as lock`;
    await execute(tx, action, lock);
    await execute(
      tx,
      action,
      statement()`do ${sql.lit(attachStatement(runId))}`,
    );
    const planning = statement({
      parties: 'int',
      notDue: 'int',
      asked: 'int',
      deferred: 'int',
      deferredNeverAsked: 'int',
      deferredSince: 'instant?',
    })`
      with ${dueParties(request)},
      written as (
        insert into mirror.nightly_units (run_id, party_id, priority, is_idle)
        select ${runId}, party_id, priority, rank in (2, 5) from due
        where ${exportsMax}::bigint is null or priority <= ${exportsMax}::bigint
        on conflict do nothing)
      select parties, parties - due as "notDue", due - deferred as asked, deferred,
        "deferredNeverAsked", "deferredSince"
      from (select count(*)::int as parties from considered) c,
        (select count(*)::int as due,
          (count(*) filter (where ${isDeferred}))::int as deferred,
          (count(*) filter (where ${isDeferred} and last_asked_at is null))::int
            as "deferredNeverAsked",
          min(last_asked_at) filter (where ${isDeferred}) as "deferredSince"
          from due) d`;
    const planned = await readRow(tx, action, planning);
    const params = sql<string>`params || ${JSON.stringify({ plan: planned })}::jsonb`;
    const record = builder
      .updateTable('mirror.runs')
      .set({ params })
      .where('run_id', '=', runId);
    await execute(tx, action, record);
    await recordScope(tx, request);
    return planned;
  });
  // A newly filled table has no statistics, and without them the planner scans the whole
  // table for each row.
  const analyze = statement()`analyze ${sql.id('mirror', namePartition(runId))}`;
  await execute(db, action, analyze);
  return plan;
}

/** Counts the parties that would be due now. */
export function countDue(
  db: Database,
  scope: NightlyScope,
): Promise<{ parties: number; due: number }> {
  const counted = statement({ parties: 'int', due: 'int' })`
    with ${consideredParties(scope)}
    select count(*)::int as parties, (count(*) filter (where is_due))::int as due
    from considered`;
  return readRow(db, 'preview the nightly run', counted);
}

export function readLateness(
  db: Database,
  scope: NightlyScope,
): Promise<Lateness> {
  const { partyIds, idleNightsMax } = scope;
  const late = statement({ late: 'int', oldestFrontier: 'instant?' })`
    with ${selectPartyIds(partyIds)}
    select (
        select count(*) from (${selectAsked(scope)}) asked join ids using (party_id)
        where last_asked_at
          < clock_timestamp() - (${idleNightsMax} + 1) * interval '1 day')::int as late,
      (select min(known_to) from (
        select max(to_time) as known_to from mirror.coverage
        where not open group by party_id, asset_id) ends) as "oldestFrontier"`;
  return readRow(db, 'look for late ledgers', late);
}

export function estimateNightly(
  db: Database,
  { partyIds, assetIds }: ConfiguredScope,
): Promise<Estimate> {
  const estimate = statement({
    parties: 'int',
    quarantined: 'int',
    isFirst: 'boolean',
    secondsPerExport: 'float?',
  })`
    with ${selectPartyIds(partyIds)}
    select (select count(*) from ids)::int as parties,
      (select count(distinct party_id) from mirror.exports join ids using (party_id)
        where quarantined_at is not null and ${concernsLedger(assetIds)})::int
        as quarantined,
      not exists (
        select from mirror.runs where kind = 'sync' and state = 'done') as "isFirst",
      (select (evidence->'exports'->>'secondsPerExport')::float8 from mirror.runs
        where kind = 'nightly' and state = 'done'
          and evidence->'exports' ? 'secondsPerExport'
        order by queued_at desc limit 1) as "secondsPerExport"`;
  return readRow(db, 'estimate the nightly run', estimate);
}

/** The stored size of one list, and whether it has been confirmed. */
export interface ListSize {
  readonly list: 'parties' | 'checkpoints';
  readonly rows: bigint;
  /**
   * Whether a second reading has agreed with the first. Until then, each sync reads the
   * whole list.
   */
  readonly isConfirmed: boolean;
}

/** Reads the number of rows of each list. A list that has never been read is left out. */
export function readListSizes(db: Database): Promise<readonly ListSize[]> {
  const sizes = statement({
    list: typed<ListSize['list']>('text'),
    rows: 'bigint',
    isConfirmed: 'boolean',
  })`
    select list, rows, confirmed_at is not null as "isConfirmed" from mirror.generations
    where kind = 'current' and epoch = (select max(epoch) from mirror.networks)
    order by list desc`;
  return readRows(db, 'count the rows of the lists', sizes);
}

/** Closed segments that the source should still have, and that can be requested again. */
export interface Auditable {
  readonly segments: bigint;
  /** Size as plain CSV, which is how much comparing all of them would download. */
  readonly bytes: bigint;
}

/**
 * Counts the segments that may be requested again for the parties in the run's scope.
 * Empty ranges are not counted, because they need no request of their own.
 */
export function readAuditable(
  db: Database,
  { partyIds, assetIds }: ConfiguredScope,
  retentionMs: number,
): Promise<Auditable> {
  // Uses the source's time, as indicated by the newest range, because a source may lag
  // behind real time.
  const oldest = sql`(select max(to_time) from mirror.coverage)
    - ${retentionMs}::float8 * interval '1 millisecond'`;
  const auditable = statement({ segments: 'bigint', bytes: 'bigint' })`
    with ${selectPartyIds(partyIds)}
    select count(*) as segments, coalesce(sum(bytes), 0)::bigint as bytes
    from mirror.segments join ids using (party_id)
    where status = 'current' and not open and quarantine_reason is null
      and to_time > ${oldest} and ${concernsLedger(assetIds)}`;
  return readRow(db, 'count the segments to audit', auditable);
}

/**
 * Returns the name of a run's partition. Each run has its own, so that its rows can be
 * dropped as a whole and its statistics are separate from those of other runs.
 */
export function namePartition(runId: string): string {
  return `nightly_units_${runId.replaceAll('-', '')}`;
}

/**
 * Creates the partition as a table and then attaches it. Creating it in place would wait
 * for all readers of the parent table, and a backup may read that for hours.
 */
function attachStatement(runId: string): string {
  const name = namePartition(runId);
  return `begin
    create table if not exists mirror.${name} (like mirror.nightly_units including all);
    if not exists (select from pg_inherits where inhrelid = 'mirror.${name}'::regclass) then
      alter table mirror.nightly_units attach partition mirror.${name} for values in ('${runId}');
    end if;
  end`;
}

/** Whether any party is known, that is, whether there is anything to export. */
export async function knowsParties(db: Database): Promise<boolean> {
  const reading = statement({ isKnown: 'boolean' })`
    select exists (select from mirror.parties
      where gone_since is null and party_id <> ${NETWORK_PARTY}) as "isKnown"`;
  const { isKnown } = await readRow(db, 'look for parties', reading);
  return isKnown;
}
