/** Segments as loading and verifying read them. */
import { type Selection, sql } from 'kysely';
import type { Database } from '../../postgres/database.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { readRows } from '../../postgres/transaction.ts';

export const SEGMENT_COLUMNS = [
  'segment_id as segmentId',
  'party_id as partyId',
  'asset_id as assetId',
  // RFC 3339; `to` is exclusive.
  'from_time as from',
  'to_time as to',
  'object_key as objectKey',
  'rows',
  'bytes',
  'sha256',
  'digest',
  'object_bytes as objectBytes',
  'object_sha256 as objectSha256',
  'columns',
  // What its load stored; null before.
  'values_digest as valuesDigest',
  sql<boolean>`loaded_at is not null`.as('isLoaded'),
] as const;

export type SegmentRecord = Selection<MirrorSchema, 'segments', (typeof SEGMENT_COLUMNS)[number]>;

/** Those of the given keys that are of a segment, current or not, or of a publication that is not finished. */
export async function readKnownObjects(
  db: Database,
  objectKeys: readonly string[],
): Promise<ReadonlySet<string>> {
  const rows = await readRows(
    db,
    'look up which objects are known',
    sql<{ object_key: string }>`
      select object_key from mirror.segments where object_key = any(${[...objectKeys]}::text[])
      union select jsonb_path_query(plan, '$.**.objectKey') #>> '{}' from mirror.publications where state = 'intent'`,
  );
  return new Set(rows.map((row) => row.object_key));
}
