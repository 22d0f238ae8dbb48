/** What a manifest says, as the columns of `mirror.segments`: the same when published and when rebuilt. */
import type { Insertable } from 'kysely';
import { formatInstant } from '../../core/time.ts';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';

/** All but `status`, `evidence` and what follows from them. */
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
