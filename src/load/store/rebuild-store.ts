/** Manifest tables and coverage rebuilt from the store, one party a transaction. */
import { type Insertable, sql, type Transaction } from 'kysely';
import { formatInstant, nowMicros } from '../../core/time.ts';
import { tailSum } from '../../ledger/objects/coverage-record.ts';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import type { Coverage } from '../../export/ports.ts';
import type { RebuiltParty, RebuiltRange } from '../ports.ts';
import type { Database } from '../../postgres/database.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { segmentColumns } from '../../export/store/segment-row.ts';
import { lockParties } from '../../export/store/export-locks.ts';
import { readCoverage, supersede } from '../../export/store/publications.ts';
import { mapDatabaseError, inTransaction } from '../../postgres/transaction.ts';

/** Rows of one insert: Postgres takes 65,535 parameters. */
const ROWS_MAX = 1000;

export class RebuildStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Nothing is published or covered. */
  isEmpty(): Promise<boolean> {
    return mapDatabaseError('look for segments', async () => {
      const { rows } = await sql<{ is_known: boolean }>`
        select exists (select from mirror.segments) or exists (select from mirror.coverage) as is_known`.execute(
        this.#db,
      );
      return rows[0]?.is_known !== true;
    });
  }

  async begin(): Promise<void> {
    await mapDatabaseError('begin to rebuild', () =>
      this.#db.updateTable('identity').set({ is_rebuilding: true }).execute(),
    );
  }

  /** The warehouse's own, its last number, and whether a rebuild was begun and not finished. */
  lineage(): Promise<{ warehouseId: string; seq: bigint; isRebuilding: boolean }> {
    return mapDatabaseError('read the identity of the warehouse', () =>
      this.#db
        .selectFrom('identity')
        .select(['warehouse_id as warehouseId', 'publication_seq as seq', 'is_rebuilding as isRebuilding'])
        .executeTakeFirstOrThrow(),
    );
  }

  /** Records one party in one transaction. What is known and overlaps nothing of it stays; the rest gives way. */
  async adopt({ partyId, current, superseded, coverage }: RebuiltParty): Promise<void> {
    await inTransaction(this.#db, { action: `record what is published of party ${partyId}` }, async (tx) => {
      // Neither an export of the party nor another rebuild comes between.
      await lockParties(tx, [partyId]);
      const known = await readCoverage(tx, { partyId });
      if (coverage.every((range) => known.some((row) => isSame(row, range)))) return;
      // The newest word on what they cover lies in the store.
      const gone = known.filter((row) => coverage.some((range) => overlap(row, range)));
      await supersede(
        tx,
        gone.map(({ coverageId }) => coverageId),
      );
      await insertSegments(tx, superseded, 'superseded');
      const segmentIds = await insertSegments(tx, current, 'current');
      for (const batch of batches(coverage)) {
        const rows = batch.map((range) => coverageRow(partyId, range, segmentIds));
        await tx.insertInto('coverage').values(rows).execute();
      }
    });
  }

  /** Takes over the lineage (warehouse id, sequence) that published all of it: what comes next is newer. */
  async finish(lineage: { warehouseId: string; seq: bigint } | undefined): Promise<void> {
    await inTransaction(this.#db, { action: 'finish the rebuild' }, async (tx) => {
      await tx.updateTable('identity').set({ is_rebuilding: false }).execute();
      if (lineage === undefined) return;
      await tx
        .updateTable('identity')
        .set({ warehouse_id: lineage.warehouseId, publication_seq: lineage.seq })
        .where('publication_seq', '<', lineage.seq)
        .execute();
    });
  }
}

function isSame(row: Coverage, range: RebuiltRange): boolean {
  return (
    row.from === range.from &&
    row.to === range.to &&
    row.open === range.open &&
    (row.assetId ?? null) === range.assetId &&
    (row.objectKey ?? null) === range.objectKey
  );
}

function overlap(row: Coverage, { assetId, from, to }: RebuiltRange): boolean {
  const isOfBoth = row.assetId === undefined || assetId === null || row.assetId === assetId;
  return isOfBoth && row.from < to && from < row.to;
}

/** @returns their ids by object key */
async function insertSegments(
  tx: Transaction<MirrorSchema>,
  manifests: readonly Manifest[],
  status: 'current' | 'superseded',
): Promise<ReadonlyMap<string, bigint>> {
  const ids = new Map<string, bigint>();
  for (const batch of batches(manifests)) {
    const inserted = await tx
      .insertInto('segments')
      .values(batch.map((manifest) => segmentRow(manifest, status)))
      .onConflict((conflict) =>
        conflict.column('object_key').doUpdateSet((eb) => ({
          status,
          open: eb.ref('excluded.open'),
          removed_at: null,
          superseded_at:
            status === 'current' ? null : sql`coalesce(segments.superseded_at, excluded.superseded_at)`,
        })),
      )
      .returning(['segment_id', 'object_key'])
      .execute();
    for (const row of inserted) ids.set(row.object_key, row.segment_id);
  }
  return ids;
}

function* batches<Row>(rows: readonly Row[]): Generator<readonly Row[]> {
  for (let start = 0; start < rows.length; start += ROWS_MAX) yield rows.slice(start, start + ROWS_MAX);
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

function coverageRow(
  partyId: string,
  range: RebuiltRange,
  segmentIds: ReadonlyMap<string, bigint>,
): Insertable<MirrorSchema['coverage']> {
  const segmentId = range.objectKey === null ? null : segmentIds.get(range.objectKey);
  if (segmentId === undefined) throw new RangeError(`no segment is current of ${range.objectKey}`);
  return {
    party_id: partyId,
    asset_id: range.assetId,
    from_time: formatInstant(range.from),
    to_time: formatInstant(range.to),
    open: range.open,
    sides: range.sides,
    segment_id: segmentId,
    tail: range.tail === null ? null : JSON.stringify(tailSum.encode(range.tail)),
    run_id: range.runId,
    checked_at: formatInstant(range.checkedAt),
  };
}
