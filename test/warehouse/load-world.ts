/** A migrated warehouse of a test file's own, and a fresh store for each of its tests. */
import { afterAll, beforeEach } from 'vitest';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { temporaryStore } from './published.ts';
import {
  emptyLake,
  emptyLedgers,
  emptyLists,
} from '../support/mirror-arrange.ts';

export interface LoadWorld {
  readonly database: FreshDatabase;
  readonly warehouse: Warehouse;
  /** Empty at the beginning of each test, as the warehouse is. */
  readonly objects: ObjectStore;
}

/** Call it at the top level of a test file. */
export async function loadWorld(): Promise<LoadWorld> {
  const database = await freshDatabase({ isMigrated: true });
  const warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  afterAll(() => warehouse[Symbol.asyncDispose]());
  let objects: ObjectStore | undefined;
  beforeEach(async () => {
    await emptyLedgers(database.pool);
    await emptyLists(database.pool);
    await emptyLake(database.pool);
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
