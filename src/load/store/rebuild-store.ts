/** Manifest tables and coverage rebuilt from the store, one party a transaction. */
import { type Insertable, sql, type Transaction } from 'kysely';
import { formatInstant, nowMicros } from '../../core/time.ts';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import type { RecordedRange } from '../../ledger/objects/coverage-record.ts';
import { doRangesOverlap } from '../plan.ts';
import type { RebuiltParty } from '../ports.ts';
import type { Database } from '../../postgres/database.ts';
import type { MirrorSchema } from '../../postgres/schema.ts';
import { segmentColumns } from '../../export/store/segment-rows.ts';
import { lockParties } from '../../export/store/leases.ts';
import {
  type Coverage,
  coverageRow,
  insertCoverage,
  readCoverage,
  supersede,
} from '../../export/store/coverage-rows.ts';
import { inTransaction, mapDatabaseError, readRow } from '../../postgres/transaction.ts';

/** Rows of one insert: Postgres takes 65,535 parameters. */
const ROWS_MAX = 1000;

export interface Lineage {
  readonly warehouseId: string;
  /** The last number that was given. */
  readonly seq: bigint;
  /** A rebuild was begun and not finished. */
  readonly isRebuilding: boolean;
}

export class RebuildStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Nothing is published or covered. */
  async isEmpty(): Promise<boolean> {
    const { known } = await readRow(
      this.#db,
      'look for segments',
      sql<{ known: boolean }>`
        select exists (select from mirror.segments) or exists (select from mirror.coverage) as known`,
    );
    return !known;
  }

  async begin(): Promise<void> {
    await mapDatabaseError('begin to rebuild', () =>
      this.#db.updateTable('identity').set({ is_rebuilding: true }).execute(),
    );
  }

  lineage(): Promise<Lineage> {
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
      const gone = known.filter((row) => coverage.some((range) => doRangesOverlap(row, range)));
      await supersede(
        tx,
        gone.map(({ coverageId }) => coverageId),
      );
      await insertSegments(tx, superseded, 'superseded');
      const segmentIds = await insertSegments(tx, current, 'current');
      await insertCoverage(
        tx,
        coverage.map((range) => rebuiltRow(partyId, range, segmentIds)),
      );
    });
  }

  /** Takes over the lineage (warehouse id, sequence) that published all of it: what comes next is newer. */
  async finish(lineage: Pick<Lineage, 'warehouseId' | 'seq'> | undefined): Promise<void> {
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

function isSame(row: Coverage, range: RecordedRange): boolean {
  return (
    row.from === range.from &&
    row.to === range.to &&
    row.open === range.open &&
    (row.assetId ?? null) === range.assetId &&
    (row.objectKey ?? null) === range.objectKey
  );
}

/** @returns their ids by object key */
async function insertSegments(
  tx: Transaction<MirrorSchema>,
  manifests: readonly Manifest[],
  status: 'current' | 'superseded',
): Promise<ReadonlyMap<string, bigint>> {
  const ids = new Map<string, bigint>();
  for (let start = 0; start < manifests.length; start += ROWS_MAX) {
    const rows = manifests.slice(start, start + ROWS_MAX).map((manifest) => segmentRow(manifest, status));
    const inserted = await tx
      .insertInto('segments')
      .values(rows)
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

function rebuiltRow(partyId: string, range: RecordedRange, segmentIds: ReadonlyMap<string, bigint>): object {
  const { objectKey } = range;
  const segmentId = objectKey === null ? undefined : segmentIds.get(objectKey);
  if (objectKey !== null && segmentId === undefined)
    throw new RangeError(`no segment is current of ${objectKey}`);
  return coverageRow(partyId, range, range, segmentId);
}
