/** The parties that the source has ever listed, by id. */
import { sql } from 'kysely';
import { CANDIDATES_MAX, isCutId, splitCutId, NETWORK_PARTY } from '../../core/ids.ts';
import type { Database } from '../../postgres/database.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

/** The party with this id first, then, where the id is cut, those whose id begins and ends so: as many as one is chosen of. */
export async function findListedParties(db: Database, given: string): Promise<readonly string[]> {
  const { prefix, suffix } = splitCutId(given);
  return mapDatabaseError('look a party up', async () => {
    const found = await sql<{ party_id: string }>`
      select party_id from mirror.parties
       where party_id = ${given} or (${isCutId(given)} and party_id <> ${NETWORK_PARTY}
         and starts_with(party_id, ${prefix}) and right(party_id, length(${suffix})) = ${suffix})
       order by party_id <> ${given}, party_id limit ${CANDIDATES_MAX}`.execute(db);
    return found.rows.map((row) => row.party_id);
  });
}
