/**
 * Records when an export last had its turn, whatever came of it. A night begins with the
 * export whose turn was longest ago, so that the same failures do not come first every
 * time.
 */
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  const add = 'alter table mirror.exports add column last_tried_at timestamptz';
  await sql.raw(add).execute(db);
}
