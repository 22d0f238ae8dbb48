/** A migrated warehouse of a test file's own, and a fresh store for each of its tests. */
import { afterAll, beforeEach } from 'vitest';
import type { ObjectStore } from '../../src/objects/object-store.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { temporaryStore } from './published.ts';

export interface LoadWorld {
  readonly database: FreshDatabase;
  readonly warehouse: Warehouse;
  /** Empty at the beginning of each test, as the warehouse is. */
  readonly objects: ObjectStore;
}

/** Call it at the top level of a test file. */
export async function loadWorld(): Promise<LoadWorld> {
  const database = await freshDatabase({ isMigrated: true });
  const warehouse = openWarehouse({ url: database.url, onIdleError: () => undefined });
  afterAll(() => warehouse[Symbol.asyncDispose]());
  let objects: ObjectStore | undefined;
  beforeEach(async () => {
    await database.pool.query(
      `truncate mirror.ledger_entries, mirror.segment_months, mirror.coverage, mirror.segments,
         mirror.parties, mirror.checkpoints, mirror.lake_tables, mirror.lake_commits, mirror.lake_proofs cascade`,
    );
    await database.pool.query('alter sequence mirror.lake_builds restart');
    objects = await temporaryStore();
  });
  return {
    database,
    warehouse,
    get objects() {
      if (objects === undefined) throw new Error('no test is running');
      return objects;
    },
  };
}
