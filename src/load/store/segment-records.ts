/** Segments as loading and verifying read them. */
import { type Selection, sql } from 'kysely';
import type { MirrorSchema } from '../../postgres/schema.ts';

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
