/** The id by which a party is requested from the source. */
import { sql, type RawBuilder } from 'kysely';

/**
 * SQL for the spelling in which the source last listed a party's id; null if that matches
 * the stored id, or the source has not listed the party. A full reading of the list takes
 * precedence over the stored row even before it is claimed. The source may no longer know
 * an earlier spelling, and would respond as if the ledger had no entries.
 * @param partyId the stored id
 */
export function listedAs(partyId: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`(select shown.extra->>'id' from (
      select 1 as turn, audited.extra from mirror.audit_rows audited
      join mirror.generations using (generation_id)
      where list = 'parties' and key = ${partyId}
      union all
      select 2, held.extra from mirror.parties held where held.party_id = ${partyId}
      order by turn limit 1) shown)`;
}

/**
 * SQL for whether the last reading of the list of parties ended without a claim and
 * showed others, but not this party. Its id may be spelled differently by now, so a
 * response without entries proves nothing. This is false while the list is being read,
 * because the party may still come, and if nothing was shown: a source that does not
 * serve the list says nothing about ids, and the spelling shown last still holds.
 * @param partyId the stored id
 */
export function isUnlisted(partyId: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`(exists (
      select from mirror.generations unclaimed
      where unclaimed.list = 'parties' and unclaimed.kind = 'audit'
        and exists (
          select from mirror.audit_rows shown
          where shown.generation_id = unclaimed.generation_id)
        and not exists (
          select from mirror.audit_rows audited
          where audited.generation_id = unclaimed.generation_id and audited.key = ${partyId}))
    and not exists (
      select from mirror.list_leases reading
      where reading.list = 'parties'
        and mirror.is_leased(reading.lease_until, reading.lease_holder)))`;
}
