/**
 * When an export was taken up last, whatever came of it: a night asks those first whose
 * turn lies the furthest back, so that the same failures never come first twice.
 */
import { type Kysely, sql } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  const add = 'alter table mirror.exports add column last_tried_at timestamptz';
  await sql.raw(add).execute(db);
}
