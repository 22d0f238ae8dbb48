/** Manifest tables rebuilt from manifests, one party a transaction. */
import { type Insertable, type Transaction } from 'kysely';
import { formatInstant, nowMicros } from '../core/time.ts';
import type { Manifest } from '../ledger/manifest.ts';
import type { RebuildBooks } from '../load/ports.ts';
import type { Database } from './database.ts';
import type { MirrorSchema } from './schema.ts';
import { segmentColumns } from './segment-row.ts';
import { guarded, inTransaction } from './transaction.ts';

/** Rows of one insert: Postgres takes 65,535 parameters. */
const ROWS_MAX = 1000;

export class RebuildStore implements RebuildBooks {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async isEmpty(): Promise<boolean> {
    return guarded('look for segments', async () => {
      const row = await this.#db.selectFrom('segments').select('segment_id').limit(1).executeTakeFirst();
      return row === undefined;
    });
  }

  async adopt(current: readonly Manifest[], superseded: readonly Manifest[]): Promise<void> {
    await inTransaction(this.#db, { action: 'record published segments' }, async (tx) => {
      await insertSegments(tx, superseded, 'superseded');
      await insertSegments(tx, current, 'current');
      const newest = [...current, ...superseded].toSorted((a, b) => (a.seq < b.seq ? 1 : -1))[0];
      if (newest === undefined) return;
      // The objects' lineage goes on in this database: its next publication is newer than all of them.
      await tx
        .updateTable('identity')
        .set({ warehouse_id: newest.warehouseId, publication_seq: newest.seq })
        .where('publication_seq', '<', newest.seq)
        .execute();
    });
  }
}

async function insertSegments(
  tx: Transaction<MirrorSchema>,
  manifests: readonly Manifest[],
  status: 'current' | 'superseded',
): Promise<void> {
  for (let start = 0; start < manifests.length; start += ROWS_MAX) {
    const batch = manifests.slice(start, start + ROWS_MAX);
    const inserted = await tx
      .insertInto('segments')
      .values(batch.map((manifest) => segmentRow(manifest, status)))
      .onConflict((conflict) => conflict.column('object_key').doNothing())
      .returning(['segment_id', 'object_key'])
      .execute();
    if (status === 'superseded' || inserted.length === 0) continue;
    const ids = new Map(inserted.map((row) => [row.object_key, row.segment_id]));
    const covered = batch.flatMap((manifest) => {
      const id = ids.get(manifest.objectKey);
      return id === undefined ? [] : [coverageRow(manifest, id)];
    });
    await tx.insertInto('coverage').values(covered).execute();
  }
}

function segmentRow(
  manifest: Manifest,
  status: 'current' | 'superseded',
): Insertable<MirrorSchema['segments']> {
  return {
    ...segmentColumns(manifest),
    evidence: JSON.stringify({ rebuilt: true }),
    status,
    superseded_at: status === 'superseded' ? formatInstant(nowMicros()) : null,
  };
}

function coverageRow(manifest: Manifest, segmentId: bigint): Insertable<MirrorSchema['coverage']> {
  return {
    party_id: manifest.partyId,
    asset_id: manifest.assetId,
    from_time: formatInstant(manifest.from),
    to_time: formatInstant(manifest.to),
    open: manifest.open,
    sides: manifest.sides,
    segment_id: segmentId,
    run_id: manifest.runId,
    checked_at: formatInstant(manifest.publishedAt),
  };
}
