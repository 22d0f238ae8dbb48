/** Whose ledger is due: the rule by which a night is planned, and foretold. */
import { type RawBuilder, sql } from 'kysely';

/** Whom a night is about. */
export interface NightScope {
  /** undefined: every party of the list that can be exported. */
  readonly partyIds: readonly string[] | undefined;
  /** Whether every party is asked, or idle ones only after a growing number of nights. */
  readonly everyParty: boolean;
  /** The most nights that an idle party waits. */
  readonly idleNightsMax: number;
}

/** Common table expressions: `units`, whom the night is about; `due`, who is to be asked, in order. */
export function dueUnits({ partyIds, everyParty, idleNightsMax }: NightScope): RawBuilder<unknown> {
  const chosen = partyIds === undefined ? null : [...partyIds];
  return sql`ids as (
      select party_id from mirror.parties where ${chosen}::text[] is null
      union select unnest(${chosen}::text[])),
    units as (
      select ids.party_id, u.last_asked_at,
             case when u.set_aside_at is not null then 1
                  when u.last_asked_at is null then 2
                  when u.last_entry_at > clock_timestamp() - interval '7 days' then 3
                  when named.party_id is not null then 4
                  else 5 end as rank,
             u.last_asked_at + least(2 ^ least(u.idle_nights, 10), ${idleNightsMax}) * interval '1 day'
               - (abs(hashtext(ids.party_id)) % 24 + 1) * interval '1 hour' as due_at
      from ids
      left join mirror.export_units u on u.party_id = ids.party_id and u.asset_id is null
      left join (select distinct account_to_party_id as party_id from mirror.ledger_entries
                 where not ${everyParty} and vega_time > clock_timestamp() - interval '3 days') named
        on named.party_id = ids.party_id
      where ids.party_id ~ '^[0-9a-f]{64}$'),
    due as (
      select party_id, rank, row_number() over (order by rank, last_asked_at nulls first, party_id)::int as priority
      from units where ${everyParty} or rank < 5 or due_at < clock_timestamp())`;
}
