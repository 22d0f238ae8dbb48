/** Rows of `mirror.segments`: the same when published and when rebuilt, and what marks one that is damaged. */
import type { Insertable } from 'kysely';
import { evidenceJson } from '../../core/json-value.ts';
import { formatInstant } from '../../core/time.ts';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import type { Database } from '../../postgres/database.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { mapDatabaseError } from '../../postgres/transaction.ts';

/** What a manifest says: all but `status`, `evidence` and what follows from them. */
export function segmentColumns(manifest: Manifest): Insertable<MirrorSchema['segments']> {
  return {
    party_id: manifest.partyId,
    asset_id: manifest.assetId,
    from_time: formatInstant(manifest.from),
    to_time: formatInstant(manifest.to),
    open: manifest.open,
    object_key: manifest.objectKey,
    rows: manifest.rows,
    bytes: manifest.bytes,
    sha256: manifest.sha256,
    object_bytes: manifest.objectBytes,
    object_sha256: manifest.objectSha256,
    digest: manifest.digest,
    row_form: manifest.rowForm,
    columns: manifest.columns,
    run_id: manifest.runId,
    published_at: formatInstant(manifest.publishedAt),
  };
}

type NamedSegment =
  | { readonly object_key: string }
  /** `loaded_at: null` leaves alone what another load has brought meanwhile. */
  | { readonly segment_id: bigint; readonly loaded_at?: null };

/**
 * A segment that is not what its manifest says waits for an export that replaces it. One that was replaced meanwhile
 * stays as it is.
 */
export async function quarantineSegment(
  db: Database,
  named: NamedSegment,
  reason: { readonly code: string; readonly message: string },
): Promise<void> {
  await mapDatabaseError('quarantine a segment', () =>
    db
      .updateTable('segments')
      .set({ quarantine_reason: evidenceJson(reason) })
      .where('status', '=', 'current')
      .where((eb) => eb.and(named))
      .execute(),
  );
}
