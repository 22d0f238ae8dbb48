/** The id by which a party is requested from the source. */
import { sql, type RawBuilder } from 'kysely';

/**
 * SQL for the spelling in which the source last showed a party's id; null if it showed
 * the id as it is stored, or has not shown the party. A reading of the whole list that has
 * not been claimed yet comes before the stored row. The source may no longer know an
 * earlier spelling, and would answer it as if the ledger had no entries.
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
