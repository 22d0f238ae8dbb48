/** Marks the segments whose checks are missing from their manifests. */
import { type Kysely, sql } from 'kysely';

const STATEMENTS = [
  // Audits did not count as something that the manifest lacks, so a rebuilt database
  // would have audited everything at once. The manifest of a merged segment is younger
  // than the last check of its rows.
  `update mirror.coverage c set differs_from_manifest = true
     from mirror.segments s
     where s.segment_id = c.segment_id and not c.open and not differs_from_manifest
       and c.checked_at not between s.published_at - interval '1 day'
         and s.published_at + interval '1 day'`,
];

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of STATEMENTS) await sql.raw(statement).execute(db);
}
