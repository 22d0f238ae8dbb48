/**
 * The rows of `mirror.segments`. Publishing and rebuilding write them in the same way,
 * and damaged segments are quarantined here.
 */
import type { RawBuilder } from 'kysely';
import { evidenceJson } from '../json/json-value.ts';
import {
  framesSha256,
  type Manifest,
  manifestJson,
} from '../ledger/manifest.ts';
import type { Database } from '../postgres/database.ts';
import { execute, readRows } from '../postgres/run-statement.ts';
import { statement } from '../postgres/statement.ts';

/** Why something is quarantined. */
export type Reason = Readonly<Record<'code' | 'message', string>>;

type Status = 'current' | 'superseded';

/**
 * Returns a row for `insertSegments`.
 * @param evidence facts for which the manifest has no field, or the origin of the row
 */
export function segmentRow(
  manifest: Manifest,
  evidence: object,
  status: Status = 'current',
): object {
  const { frames } = manifest;
  return {
    ...manifestJson(manifest),
    evidence: frames
      ? { ...evidence, framesSha256: framesSha256(frames) }
      : evidence,
    status,
  };
}

/**
 * Records segments. An object may be published again after its segment was superseded;
 * the segment then becomes current again. An object's key identifies its rows, but the
 * same rows may compress to different bytes, so the row takes the sums of the new
 * manifest.
 *
 * `loaded_at` is left unchanged, because it records whether the rows are in the
 * warehouse, and only a load moves rows. A row that a rebuild inserts as superseded never
 * changes an existing one.
 *
 * @returns the segments' ids by object key
 */
export async function insertSegments(
  tx: Database,
  rows: readonly object[],
): Promise<Map<string, bigint>> {
  const insert = statement({ segmentId: 'bigint', objectKey: 'text' })`
    insert into mirror.segments as existing (party_id, asset_id, from_time, to_time, open,
      object_key, rows, bytes, sha256, object_bytes, object_sha256, digest, row_form, columns,
      run_id, published_at, evidence, status, superseded_at)
    select "partyId", "assetId", "from", "to", open, "objectKey", rows, bytes, sha256,
      "objectBytes", "objectSha256", digest, "rowForm", columns, "runId", "publishedAt", evidence,
      status, case when status = 'superseded' then clock_timestamp() end
    from jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) as given("partyId" text,
      "assetId" text, "from" timestamptz, "to" timestamptz, open boolean, "objectKey" text,
      rows bigint, bytes bigint, sha256 text, "objectBytes" bigint, "objectSha256" text,
      digest text, "rowForm" text, columns text[], "runId" uuid, "publishedAt" timestamptz,
      evidence jsonb, status text)
    on conflict (object_key) do update set status = excluded.status,
      superseded_at = excluded.superseded_at, removed_at = null, quarantine_reason = null,
      open = excluded.open, run_id = excluded.run_id, object_bytes = excluded.object_bytes,
      object_sha256 = excluded.object_sha256, evidence = existing.evidence
        || jsonb_build_object('replacedRows', excluded.evidence->'replacedRows',
          'framesSha256', excluded.evidence->'framesSha256')
    where excluded.status = 'current'
    returning segment_id as "segmentId", object_key as "objectKey"`;
  const inserted = await readRows(tx, 'record segments', insert);
  return new Map(inserted.map((row) => [row.objectKey, row.segmentId]));
}

/**
 * Quarantines segments that do not match their manifest, until an export replaces them. A
 * segment that has been replaced in the meantime is left unchanged.
 */
export async function quarantineSegment(
  db: Database,
  where: RawBuilder<unknown>,
  reason: Reason,
): Promise<void> {
  const quarantine = statement()`
    update mirror.segments set quarantine_reason = ${evidenceJson(reason)}::jsonb
    where status = 'current' and ${where}`;
  await execute(db, 'quarantine a segment', quarantine);
}
