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
