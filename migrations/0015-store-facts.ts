/** What the object store has to say beyond its manifests, and since when it is known. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // The manifest of the range's object says less, or something else: it was closed as it
  // stands, or an earlier version wrote it. What is true of the range lies in the store
  // as a line of its own. Of older ranges nobody knows, so that all of them count.
  'alter table mirror.coverage add column differs_from_manifest boolean not null default true',
  'alter table mirror.coverage alter column differs_from_manifest set default false',
  // The ranges that the store's record of ranges names.
  `create index coverage_beyond_manifests on mirror.coverage (party_id, from_time)
     where not open and (segment_id is null or differs_from_manifest)`,
  // The object store-mark.json carries the same id, unless the database went back to a
  // backup that is older than the last night.
  'alter table mirror.identity add column store_mark uuid',
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
