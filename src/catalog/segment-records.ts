/** Reads the records of segments, for loading and verifying. */
import type { RawBuilder } from 'kysely';
import type { Manifest } from '../ledger/manifest.ts';
import type { Database } from '../postgres/database.ts';
import { readRows } from '../postgres/run-statement.ts';
import { statement } from '../postgres/statement.ts';

type AsInManifest =
  | 'partyId'
  | 'assetId'
  | 'objectKey'
  | 'rows'
  | 'bytes'
  | 'sha256'
  | 'digest';
export interface SegmentRecord extends Pick<
  Manifest,
  AsInManifest | 'objectBytes' | 'objectSha256' | 'columns'
> {
  readonly segmentId: bigint;
  /** The start of the range, as RFC 3339. */
  readonly from: string;
  /** The end of the range, exclusive. */
  readonly to: string;
  /** The digest of the values that were loaded; null if the segment was never loaded. */
  readonly valuesDigest: string | null;
  readonly isLoaded: boolean;
  /**
   * The SHA-256 of the object's frames; null if it has only one, or if its manifest is
   * of an earlier version.
   */
  readonly framesSha256: string | null;
}

/** Reads segments. @param which the SQL after `where`: a condition, and an order */
export function readSegments(
  db: Database,
  action: string,
  which: RawBuilder<unknown>,
): Promise<readonly SegmentRecord[]> {
  const segments = statement({
    segmentId: 'bigint',
    partyId: 'text',
    assetId: 'text?',
    from: 'instant',
    to: 'instant',
    objectKey: 'text',
    rows: 'bigint',
    bytes: 'bigint',
    sha256: 'text',
    digest: 'text',
    objectBytes: 'bigint',
    objectSha256: 'text',
    columns: 'text[]',
    valuesDigest: 'text?',
    isLoaded: 'boolean',
    framesSha256: 'text?',
  })`
    select segment_id as "segmentId", party_id as "partyId", asset_id as "assetId",
      from_time as "from", to_time as "to", object_key as "objectKey", rows, bytes, sha256, digest,
      object_bytes as "objectBytes", object_sha256 as "objectSha256", columns,
      values_digest as "valuesDigest", loaded_at is not null as "isLoaded",
      evidence->>'framesSha256' as "framesSha256"
    from mirror.segments where ${which}`;
  return readRows(db, action, segments);
}
