/**
 * Marks the parties that were restored from the lake and not listed since by a column of
 * their own. Earlier versions marked them by a `last_seen_at` in 1970, which readers of
 * the table took for a time.
 */
import { type Kysely, sql } from 'kysely';
import comments from './comments.json' with { type: 'json' };

const STATEMENTS = [
  'alter table mirror.parties add column restored_at timestamptz',
  // The time when a party was first seen is the only one at which it is known to have
  // been listed.
  `update mirror.parties
     set restored_at = clock_timestamp(), last_seen_at = first_seen_at
     where last_seen_at = to_timestamp(0)`,
];

/** Columns whose meaning changes. */
const DESCRIBED: ReadonlySet<string> = new Set([
  'mirror.parties.last_seen_at',
  'mirror.parties.restored_at',
  'mirror.party_list.last_seen_at',
]);

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
  for (const { relation, columns } of comments) {
    for (const [column, meaning] of Object.entries(columns)) {
      const name = `${relation}.${column}`;
      if (!DESCRIBED.has(name)) continue;
      await sql`comment on column ${sql.raw(name)} is ${sql.lit(meaning)}`.execute(
        db,
      );
    }
  }
}
