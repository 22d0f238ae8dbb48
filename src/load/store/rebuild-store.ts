/** Manifest tables rebuilt from the store, one party a transaction. */
import { sql } from 'kysely';
import type { Manifest } from '../../ledger/objects/manifest.ts';
import { chooseNewest } from '../plan.ts';
import type { Database } from '../../postgres/database.ts';
import { insertSegments, segmentRow } from '../../export/store/segment-rows.ts';
import { lockEach } from '../../export/store/leases.ts';
import { coverageRow, insertCoverage, readCoverages, supersede } from '../../export/store/coverage-rows.ts';
import { inTransaction, readRow, readRows } from '../../postgres/transaction.ts';
import { readKnownObjects } from './segment-records.ts';

export class RebuildStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** @returns whether nothing is published or covered, or a rebuild was begun and not finished */
  async beginIfEmpty(): Promise<boolean> {
    const begun = await readRows(
      this.#db,
      'begin to rebuild',
      sql`update mirror.identity set is_rebuilding = true where is_rebuilding
        or not exists (select from mirror.segments) and not exists (select from mirror.coverage) returning 1 as one`,
    );
    return begun.length > 0;
  }

  lineage(): Promise<{ readonly warehouseId: string; readonly isRebuilding: boolean }> {
    const identity = sql<{ warehouseId: string; isRebuilding: boolean }>`
      select warehouse_id as "warehouseId", is_rebuilding as "isRebuilding" from mirror.identity`;
    return readRow(this.#db, 'read the identity of the warehouse', identity);
  }

  knownObjects(objectKeys: readonly string[]): Promise<ReadonlySet<string>> {
    return readKnownObjects(this.#db, objectKeys);
  }

  /**
   * Records one party in one transaction. Where manifests overlap each other, or what is known, the newest holds.
   * @returns how many of its segments are current, and how many are superseded
   */
  async adopt(
    partyId: string,
    manifests: readonly Manifest[],
  ): Promise<{ readonly current: number; readonly superseded: number }> {
    return inTransaction(this.#db, { action: `record what is published of party ${partyId}` }, async (tx) => {
      // Neither an export of the party nor another rebuild comes between.
      await lockEach(tx, 'export', [partyId]);
      const known = await readKnownObjects(
        tx,
        manifests.map(({ objectKey }) => objectKey),
      );
      const fresh = manifests.filter(({ objectKey }) => !known.has(objectKey));
      const { held, gone } = chooseNewest([
        ...((await readCoverages(tx, [partyId])).get(partyId) ?? []).map((row) => ({
          ...row,
          at: row.checkedAt ?? 0n,
        })),
        ...fresh.map((manifest) => ({ ...manifest, at: manifest.publishedAt })),
      ]);
      await supersede(
        tx,
        gone.flatMap((one) => ('coverageId' in one ? one.coverageId : [])),
      );
      const superseded = gone.filter((one) => 'seq' in one);
      const current = held.filter((one) => 'seq' in one);
      const segmentIds = await insertSegments(tx, [
        ...superseded.map((manifest) => segmentRow(manifest, { rebuilt: true }, 'superseded')),
        ...current.map((manifest) => segmentRow(manifest, { rebuilt: true })),
      ]);
      await insertCoverage(
        tx,
        current.map((manifest) => {
          const range = { ...manifest, checkedAt: manifest.publishedAt };
          return coverageRow(partyId, manifest, range, segmentIds.get(manifest.objectKey));
        }),
      );
      return { current: current.length, superseded: superseded.length };
    });
  }

  /** @param newest of all that was learned: what is published next has a higher number, and carries on its lineage */
  async finish(newest: Pick<Manifest, 'warehouseId' | 'seq'> | undefined): Promise<void> {
    await inTransaction(this.#db, { action: 'finish the rebuild' }, async (tx) => {
      await sql`update mirror.identity set is_rebuilding = false where is_rebuilding`.execute(tx);
      if (newest === undefined) return;
      await sql`update mirror.identity set warehouse_id = ${newest.warehouseId}, publication_seq = ${newest.seq}
        where publication_seq < ${newest.seq}`.execute(tx);
    });
  }
}
