/** Records which object store this database has claimed as its own. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // The object mirror.json in the store has the same id. A copy of this database has
  // it too, but there the system identifier or the oid differs.
  'alter table mirror.identity add column store_claim uuid',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
