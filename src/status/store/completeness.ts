/**
 * Reads whether the mirror is complete. The status, the console, the API, the metrics
 * and every verdict use this single query.
 */
import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { inTransaction } from '../../postgres/transaction.ts';
import { execute, readRow } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';

export interface Completeness {
  /**
   * Ledgers that the source lists in this epoch, not counting the party `network`, which
   * has none.
   */
  readonly listed: number;
  /** How many parties the configuration names; null if it means every listed party. */
  readonly configured: number | null;
  /**
   * Ledgers that must be covered: every listed one, or those of the configured parties.
   */
  readonly wanted: number;
  /** Wanted ledgers that are covered without a gap, from the beginning, in this epoch. */
  readonly covered: number;
  /**
   * Wanted and listed ledgers that were never requested from the source in this epoch.
   */
  readonly neverAsked: number;
  /**
   * The instant up to which every covered ledger is known, as RFC 3339; null if no ledger
   * is covered.
   */
  readonly coveredTo: string | null;
  /**
   * The instant since which every range of the covered ledgers has been compared with the
   * source, as RFC 3339; null if no ledger is covered. Entries that the source has added
   * to older ranges since then may be missing.
   */
  readonly comparedSince: string | null;
  /** Configured parties that the source does not list. None of them counts as covered. */
  readonly unlisted: number;
  /** The first parties of `unlisted`, by id; at most `NAMED_MAX`. */
  readonly unlistedParties: readonly string[];
  /**
   * Parties that the source used to list and no longer does; counted only if every listed
   * party is wanted. Their ledgers stay in the mirror, but need no further coverage.
   */
  readonly removed: number;
  /** The first parties of `removed`, by id; at most `NAMED_MAX`. */
  readonly removedParties: readonly string[];
  /** Parties with a wanted ledger whose export failed too often. */
  readonly quarantined: number;
  /** Open doubts of this epoch, on any subject. */
  readonly openDoubts: number;
  /** Lists that were never read to their end in this epoch. */
  readonly unreadLists: readonly string[];
  /** Known gaps of both lists in this epoch. */
  readonly knownGaps: number;
  /** Known gaps that no audit has confirmed. */
  readonly unconfirmedGaps: number;
  /** Current segments that are published but not yet loaded into the warehouse. */
  readonly notLoaded: number;
  /**
   * Whether a queued or running run (a load, an export, or a nightly run whose load has
   * not ended) will still load the segments that it published.
   */
  readonly isLoading: boolean;
  /**
   * Whether the last verification requested by an operator had a verdict other than
   * `complete`.
   */
  readonly hasFailedVerify: boolean;
}

/**
 * Maximum number of unlisted or removed parties to return by name, so that a wrong
 * configuration cannot bloat the response.
 */
const NAMED_MAX = 20;

/** Columns that combine the ranges of a ledger into one. */
const RANGES = sql`max(c.to_time) as known_to, min(c.checked_at) as compared_since,
  min(c.from_time) <= 'epoch'
    and sum(c.to_time - c.from_time) = max(c.to_time) - min(c.from_time)
    and count(*) filter (where c.segment_id in (select segment_id from quarantined)) = 0
    as is_unbroken`;
const IS_PROVEN = sql`(not c.open or exists (
  select from mirror.source_state where profile @> '{"isTimeless": true}'))`;
const IS_OF_EPOCH = sql`((select is_first from network)
  or max(c.checked_at) >= (select started_at from network))`;

/**
 * A ledger is covered if its closed ranges are contiguous from the beginning of time, the
 * newest of them was checked in the current epoch, and none of their segments is
 * quarantined. Ranges never overlap (triggers enforce this), so they are contiguous if
 * their lengths add up to their span. If the source sends no times, a ledger has only
 * open ranges, and these count. If the source requires an asset, each asset in
 * SOURCE_ASSETS, as recorded by the last nightly run, must be covered. An asset that was
 * only requested on demand, or that is no longer in SOURCE_ASSETS, need not be.
 */
const COVERED = sql`
  network as (
    select epoch, started_at, epoch = (select min(epoch) from mirror.networks) as is_first
    from mirror.networks order by epoch desc limit 1),
  chosen as (select party_ids from mirror.nightly_scope),
  listed as not materialized (
    select party_id from mirror.parties
    where epoch = (select epoch from network) and gone_since is null
      and party_id <> 'network'),
  named as materialized (
    select named.party_id, listed.party_id is not null as is_listed
    from (
      select distinct party_id from chosen cross join unnest(party_ids) party_id
      where party_id <> 'network') named
    left join listed using (party_id)),
  removed as (
    select party_id from mirror.parties
    where gone_since is not null and party_id <> 'network'
      and (select party_ids from chosen) is null),
  quarantined as (
    select segment_id from mirror.segments where quarantine_reason is not null),
  demanded as (
    select distinct asset_id
    from mirror.nightly_scope cross join unnest(asset_ids) asset_id
    where exists (
      select from mirror.source_state where profile @> '{"assetRequired": true}')),
  in_all_assets as not materialized (
    select c.party_id, ${RANGES}
    from mirror.coverage c
    where c.asset_id is null and ${IS_PROVEN}
    group by c.party_id
    having ${IS_OF_EPOCH}),
  in_each_asset as materialized (
    select party_id, min(known_to) as known_to, min(compared_since) as compared_since
    from (
      select c.party_id, c.asset_id, ${RANGES}
      from mirror.coverage c
      where c.asset_id in (select asset_id from demanded) and ${IS_PROVEN}
      group by c.party_id, c.asset_id
      having ${IS_OF_EPOCH}) of_asset
    where is_unbroken and exists (select from demanded)
    group by party_id
    having count(*) = (select count(*) from demanded)),
  gaps as (
    select confirmed_by_run from mirror.list_gaps
    where epoch = (select epoch from network) and closed_at is null),
  set_aside as (
    select party_id from mirror.exports
    where quarantined_at is not null
      and (asset_id is null or asset_id in (select asset_id from demanded))
      and case when (select party_ids from chosen) is null
        then party_id in (select party_id from listed)
        else party_id in (select party_id from named) end)`;

/**
 * Scalar: the earliest time at which a response from the source belonged to the current
 * epoch.
 */
const EPOCH_STARTED_AT = sql`(
  select case when is_first then '-infinity' else started_at end from network)`;

/**
 * Statement: counts the wanted parties and their coverage, in one row. The query
 * contains this statement twice, once for each kind of scope. The copy for the kind
 * that is not configured costs nothing. A single statement over a union of both would
 * have to sort on disk.
 * @param parties relation with `party_id` and `is_listed`
 */
function tallyOf(parties: RawBuilder<unknown>) {
  return sql`
    select count(*) as wanted,
      count(*) filter (where is_listed) as listed,
      count(*) filter (where is_listed and (w.is_unbroken or a.party_id is not null))
        as covered,
      min(case when w.is_unbroken then w.known_to else a.known_to end)
        filter (where is_listed) as covered_to,
      min(case when w.is_unbroken then w.compared_since else a.compared_since end)
        filter (where is_listed) as compared_since,
      count(*) filter (
        where is_listed and w.party_id is null and not exists (
          select from mirror.exports asked
          where asked.party_id = p.party_id and last_asked_at >= ${EPOCH_STARTED_AT})
        and not exists (
          select from mirror.coverage known
          where known.party_id = p.party_id and known.checked_at >= ${EPOCH_STARTED_AT}))
        as never_asked
    from ${parties} p
    left join in_all_assets w using (party_id)
    left join in_each_asset a using (party_id)`;
}

const TALLY = sql`
  tally as (
    ${tallyOf(sql`(
      select party_id, true as is_listed from listed
      where (select party_ids from chosen) is null)`)}
    union all
    ${tallyOf(sql`(
      select * from named where (select party_ids from chosen) is not null)`)}),
  unlisted as (select party_id from named where not is_listed)`;

/**
 * Planner settings for this transaction only. Both sides of the join are read in party
 * order, from covering indexes. The planner cannot know how many ledgers remain after
 * grouping; without these settings it hashes or sorts 100,000 parties on disk, which
 * takes twice as long.
 */
const PLANNER = statement({ hash: 'text', scan: 'text' })`
  select set_config('enable_hashjoin', 'off', true) as hash,
         set_config('enable_seqscan', 'off', true) as scan`;

/** Reads all counts in one statement, so that they describe the same instant. */
export function readCompleteness(db: Database): Promise<Completeness> {
  const action = 'read what is covered';
  const completeness = statement({
    listed: 'int',
    configured: 'int?',
    wanted: 'int',
    covered: 'int',
    neverAsked: 'int',
    coveredTo: 'instant?',
    comparedSince: 'instant?',
    unlisted: 'int',
    unlistedParties: 'text[]',
    removed: 'int',
    removedParties: 'text[]',
    quarantined: 'int',
    openDoubts: 'int',
    unreadLists: 'text[]',
    knownGaps: 'int',
    unconfirmedGaps: 'int',
    notLoaded: 'int',
    isLoading: 'boolean',
    hasFailedVerify: 'boolean',
  })`
    with ${COVERED}, ${TALLY}
    select (case when (select party_ids from chosen) is null then sum(listed)
        else (select count(*) from listed) end)::int as listed,
      (select cardinality(party_ids) from chosen) as configured,
      sum(wanted)::int as wanted,
      sum(covered)::int as covered,
      sum(never_asked)::int as "neverAsked",
      min(covered_to) as "coveredTo",
      min(compared_since) as "comparedSince",
      (select count(*) from unlisted)::int as unlisted,
      array(select party_id from unlisted order by party_id limit ${NAMED_MAX})
        as "unlistedParties",
      (select count(*) from removed)::int as removed,
      array(select party_id from removed order by party_id limit ${NAMED_MAX})
        as "removedParties",
      (select count(distinct party_id) from set_aside)::int as quarantined,
      (select count(*) from mirror.doubts
        where closed_at is null and epoch = (select epoch from network))::int
        as "openDoubts",
      array(
        select list from unnest(array['parties', 'checkpoints']) list
        where not exists (
          select from mirror.generations g
          where g.list = list.list and g.epoch = (select epoch from network)
            and g.kind = 'current' and g.confirmed_at is not null)) as "unreadLists",
      (select count(*) from gaps)::int as "knownGaps",
      (select count(*) from gaps where confirmed_by_run is null)::int
        as "unconfirmedGaps",
      (select count(*) from mirror.segments
        where status = 'current' and loaded_at is null)::int as "notLoaded",
      exists (
        select from mirror.runs r
        where state in ('queued', 'running')
          and (kind in ('load', 'export') or kind = 'nightly' and not exists (
            select from mirror.runs part
            where part.parent_run_id = r.run_id and part.kind = 'load'
              and part.state = 'done'))) as "isLoading",
      coalesce((
        select verdict <> 'complete' from mirror.runs
        where kind = 'verify' and state = 'done'
        order by queued_at desc limit 1), false) as "hasFailedVerify"
    from tally`;
  return inTransaction(db, { action, retries: 0 }, async (tx) => {
    await readRow(tx, action, PLANNER);
    return readRow(tx, action, completeness);
  });
}

/** The scope of the mirror, as configured. */
export interface ConfiguredScope {
  /** The parties in NIGHTLY_PARTIES; undefined if every listed party is wanted. */
  readonly partyIds: readonly string[] | undefined;
  /** The assets in SOURCE_ASSETS; undefined if none are configured. */
  readonly assetIds?: readonly string[] | undefined;
}

/**
 * Records the configuration that completeness is measured against. Each nightly run
 * calls this when it plans, because a process that reads the status may have a
 * different configuration.
 */
export async function recordScope(
  db: Database,
  { partyIds, assetIds }: ConfiguredScope,
): Promise<void> {
  const parties = partyIds === undefined ? null : [...partyIds];
  const assets = assetIds === undefined ? null : [...assetIds];
  const record = statement()`
    update mirror.nightly_scope set party_ids = ${parties}, asset_ids = ${assets}
    where party_ids is distinct from ${parties}::text[]
      or asset_ids is distinct from ${assets}::text[]`;
  await execute(db, 'record the scope of the nightly run', record);
}
