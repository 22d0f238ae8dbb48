/** What exports, rebuilds and the janitor do one after another: locks until the end of a transaction. */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';

/** Who claims, or rebuilds, a party's units. */
export async function lockParty(tx: Database, partyId: string): Promise<void> {
  await sql`select pg_advisory_xact_lock(mirror.lock_key(${`export ${partyId}`}))`.execute(tx);
}

/** Who comes to name objects, or removes one that nothing names. */
export async function lockObjects(tx: Database, objectKeys: readonly string[]): Promise<void> {
  await sql`select pg_advisory_xact_lock(mirror.lock_key('object ' || key))
    from (select key from unnest(${[...objectKeys]}::text[]) key order by key) ordered`.execute(tx);
}
