/**
 * Indexes the parties that the source lists, and those that it removed, in the order in
 * which the status joins them with coverage. With 100,000 parties a sort would spill to
 * disk.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  `create index parties_listed on mirror.parties (party_id) include (epoch)
     where gone_since is null`,
  `create index parties_gone on mirror.parties (party_id) where gone_since is not null`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
