/** What exports, rebuilds and the janitor do one after another: locks until the end of a transaction. */
import { sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';

/** Who leases exports, or rebuilds a party. */
export async function lockParties(tx: Database, partyIds: readonly string[]): Promise<void> {
  await lockNames(
    tx,
    partyIds.map((id) => `export ${id}`),
  );
}

/** Who comes to name objects, or removes one that nothing names. */
export async function lockObjects(tx: Database, objectKeys: readonly string[]): Promise<void> {
  await lockNames(
    tx,
    objectKeys.map((key) => `object ${key}`),
  );
}

/** In the order of their names: two that lock several never wait for each other in a circle. */
async function lockNames(tx: Database, names: readonly string[]): Promise<void> {
  await sql`select pg_advisory_xact_lock(mirror.lock_key(name))
    from (select name from unnest(${[...names]}::text[]) name order by name) ordered`.execute(tx);
}
