/**
 * Is the mirror complete? The one query behind the status, the console, the API, the
 * metrics and every verdict.
 */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import { execute, readRow } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';

export interface Completeness {
  /** Ledgers that the source lists in this epoch; `network` has none. */
  readonly listed: number;
  /**
   * How many parties are configured, where not all are; null: every party of the list.
   */
  readonly configured: number | null;
  /**
   * Ledgers that must be covered: every listed one, or those of the configured parties.
   */
  readonly wanted: number;
  /**
   * Those among them that are covered without a gap, from the beginning, in this epoch.
   */
  readonly covered: number;
  /** Those among them for which the source was never asked in this epoch. */
  readonly neverAsked: number;
  /**
   * Every covered ledger reaches at least this instant; RFC 3339, null where none is
   * covered.
   */
  readonly coveredTo: string | null;
  /** Durable reasons not to say `complete`. */
  readonly openDoubts: number;
}

/**
 * Covered: the closed ranges of a ledger touch each other from the beginning of time on,
 * the newest of them was checked in the current epoch, and none of their segments is
 * quarantined. Ranges never overlap (a constraint holds it), so they touch where their
 * lengths add up to their span. Where the source tells no times, what is open is all that
 * there is of a ledger. Where it demands an asset, each asset that was ever asked for
 * must be covered.
 */
const COVERED = sql`
  network as (select epoch, started_at, epoch = (select min(epoch) from mirror.networks) as is_first
    from mirror.networks order by epoch desc limit 1),
  chosen as (select party_ids from mirror.nightly_scope),
  listed as not materialized (
    select party_id from mirror.parties
    where epoch = (select epoch from network) and gone_since is null and party_id <> 'network'),
  wanted as (
    select party_id from listed where (select party_ids from chosen) is null
    union all select distinct party_id from chosen cross join unnest(party_ids) party_id),
  exported as (
    select c.party_id, c.asset_id, max(c.to_time) as known_to,
           min(c.from_time) <= 'epoch' and sum(c.to_time - c.from_time) = max(c.to_time) - min(c.from_time)
             and count(quarantined.segment_id) = 0 as is_unbroken
    from mirror.coverage c
    left join mirror.segments quarantined on quarantined.segment_id = c.segment_id and quarantined.quarantine_reason is not null
    where not c.open or exists (select from mirror.source_state where profile @> '{"isTimeless": true}')
    group by c.party_id, c.asset_id
    having (select is_first from network) or max(c.checked_at) >= (select started_at from network)),
  demanded as (
    select count(distinct asset_id) as assets from mirror.exports
    where asset_id is not null and exists (select from mirror.source_state where profile @> '{"assetRequired": true}')),
  ledgers as (
    select party_id,
           coalesce(bool_or(is_unbroken) filter (where asset_id is null), false)
             or ((select assets from demanded) > 0
                 and count(*) filter (where is_unbroken and asset_id is not null) >= (select assets from demanded)) as is_covered,
           min(known_to) filter (where is_unbroken) as known_to
    from exported group by party_id),
  answered as (
    select distinct party_id from mirror.exports
    where last_asked_at >= (select case when is_first then '-infinity' else started_at end from network))`;

/** All of it is of one instant. */
export function readCompleteness(db: Database): Promise<Completeness> {
  const completeness = statement({
    listed: 'int',
    configured: 'int?',
    wanted: 'int',
    covered: 'int',
    neverAsked: 'int',
    coveredTo: 'instant?',
    openDoubts: 'int',
  })`
      with ${COVERED}
      select (select count(*) from listed)::int as listed,
             (select cardinality(party_ids) from chosen) as configured,
             count(*)::int as wanted,
             (count(*) filter (where l.is_covered))::int as covered,
             (count(*) filter (where l.party_id is null and a.party_id is null))::int as "neverAsked",
             min(l.known_to) filter (where l.is_covered) as "coveredTo",
             (select count(*) from mirror.doubts
               where closed_at is null and epoch = (select epoch from network))::int as "openDoubts"
      from wanted left join ledgers l using (party_id) left join answered a using (party_id)`;
  return readRow(db, 'read what is covered', completeness);
}

/**
 * Written by each nightly run as it plans: whoever asks later need not have its
 * configuration.
 */
export async function recordScope(
  db: Database,
  partyIds: readonly string[] | undefined,
): Promise<void> {
  const chosen = partyIds === undefined ? null : [...partyIds];
  const record = statement()`
    update mirror.nightly_scope set party_ids = ${chosen}
    where party_ids is distinct from ${chosen}::text[]`;
  await execute(db, 'record whom the nightly run is about', record);
}
