/** What a half-done export has lost and seen outlives the process, and Redis: so a kill costs no more than once. */
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`alter table mirror.export_units add column piece_plan jsonb`.execute(db);
}
