/** Whose ledger is due: the rule by which a nightly run is planned, and foretold. */
import { type RawBuilder, sql } from 'kysely';
import { NETWORK_PARTY } from '../../../core/ids.ts';

/** Whom a nightly run is about. */
export interface NightlyScope {
  /** undefined: every party of the list that can be exported. */
  readonly partyIds: readonly string[] | undefined;
  /** Whether every party is asked, or idle ones only after a growing number of nights. */
  readonly everyParty: boolean;
  /** The most nights that an idle party waits. */
  readonly idleNightsMax: number;
}

/**
 * Of exports, those that say something of their party: the one of all assets, or, where the source demands an
 * asset, each. Otherwise one asset asked for on demand says nothing of the rest.
 */
export const SAYS_OF_ALL = sql`(asset_id is null
  or exists (select from mirror.source_state where profile @> '{"assetRequired": true}'))`;

/** What is known of parties that were asked. */
export const ASKED = sql`
  select party_id, max(last_asked_at) as last_asked_at, max(last_entry_at) as last_entry_at,
         min(idle_nights) filter (where last_asked_at is not null) as idle_nights, max(quarantined_at) as quarantined_at
  from mirror.exports
  where ${SAYS_OF_ALL}
  group by party_id`;

/** Ledgers that fail again and again get one turn in so many, those never asked for one in so many: neither keeps the active ones waiting. */
const QUARANTINED_EVERY = 10;
const NEW_EVERY = 3;

/** Common table expression: `ids`, whom a nightly run may be about; each once, and without reading them twice to be sure. */
export function selectPartyIds(partyIds: NightlyScope['partyIds']): RawBuilder<unknown> {
  const chosen = partyIds === undefined ? null : [...partyIds];
  return sql`ids as not materialized (
      select party_id from mirror.parties where ${chosen}::text[] is null and party_id <> ${NETWORK_PARTY}
      union all select distinct party_id from unnest(${chosen}::text[]) party_id where party_id <> ${NETWORK_PARTY})`;
}

/** Common table expressions: `ids`; `considered`, the same with who is due, and how urgently. */
export function consideredParties({
  partyIds,
  everyParty,
  idleNightsMax,
}: NightlyScope): RawBuilder<unknown> {
  return sql`${selectPartyIds(partyIds)},
    known as (
      select ids.party_id, asked.last_asked_at,
             case when asked.quarantined_at is not null then 1
                  when asked.last_asked_at is null then 2
                  when asked.last_entry_at > now() - interval '7 days' then 3
                  when named.party_id is not null then 4
                  else 5 end as rank,
             asked.last_asked_at + least(2 ^ least(asked.idle_nights, 10), ${idleNightsMax}) * interval '1 day'
               - (abs(hashtext(ids.party_id)) % 24 + 1) * interval '1 hour' as due_at
      from ids
      left join (${ASKED}) asked on asked.party_id = ids.party_id
      left join (select account_to_party_id as party_id from mirror.ledger_entries
                 where not ${everyParty} and vega_time > now() - interval '3 days'
                 union
                 select party_id from mirror.segments where status = 'current' and quarantine_reason is not null) named
        on named.party_id = ids.party_id),
    considered as (
      select party_id, rank, last_asked_at, ${everyParty} or rank < 5 or due_at < now() as is_due
      from known)`;
}

/** The same, with `due`: who is to be asked, in order. */
export function dueParties(scope: NightlyScope): RawBuilder<unknown> {
  return sql`${consideredParties(scope)},
    due as (
      select party_id, rank, last_asked_at,
             row_number() over (order by rank = 5, turn, rank, last_asked_at nulls first, party_id)::int as priority
      from (
        select party_id, rank, last_asked_at,
               row_number() over (partition by rank order by last_asked_at nulls first, party_id)
                 * case rank when 1 then ${QUARANTINED_EVERY}::int when 2 then ${NEW_EVERY}::int else 1 end as turn
        from considered where is_due) ranked)`;
}
