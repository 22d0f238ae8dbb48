/** Who claims, or rebuilds, a party's units does so alone: until the end of the transaction. */
import { sql } from 'kysely';
import type { Database } from './database.ts';

export async function lockParty(tx: Database, partyId: string): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtextextended(${`export ${partyId}`}, 0))`.execute(tx);
}
