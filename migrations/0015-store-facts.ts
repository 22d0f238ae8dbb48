/**
 * Records which facts the object store has beyond its manifests, and which record of them
 * this database last saw.
 */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // True if the manifest of the range's object says less than coverage does, or
  // something else, because the range was closed without a new object or an earlier
  // version wrote it. The store then has the facts about the range in a line of their
  // own. For ranges older than this column the answer is unknown, so all of them count as
  // true.
  'alter table mirror.coverage add column differs_from_manifest boolean not null default true',
  'alter table mirror.coverage alter column differs_from_manifest set default false',
  // The ranges that are named in the store's record of ranges.
  `create index coverage_beyond_manifests on mirror.coverage (party_id, from_time)
     where not open and (segment_id is null or differs_from_manifest)`,
  // The object store-mark.json has the same id, unless the database was restored from
  // a backup that is older than the last night.
  'alter table mirror.identity add column store_mark uuid',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
