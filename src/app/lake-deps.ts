/** The lake composed with its stores. */
import type { Config } from '../config/environment.ts';
import type { LakeDeps } from '../lake/build/build.ts';
import { LakeStore } from '../lake/store/lake-store.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { Warehouse } from '../postgres/database.ts';
import { scratchDirOf } from './data-dir.ts';

export interface LakeParts {
  readonly config: Config;
  readonly warehouse: Warehouse;
  readonly store: ObjectStore;
}

export function lakeDeps({ config, warehouse, store }: LakeParts): LakeDeps {
  return {
    repository: new LakeStore(warehouse.pool),
    objects: store,
    scratchDir: scratchDirOf(config),
    retentionMs: config.lakeRetention,
  };
}
