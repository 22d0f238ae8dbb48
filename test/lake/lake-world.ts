/** A lake of a test's own, on a folder, beside a warehouse that is none. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { LakeDeps } from '../../src/lake/build/build.ts';
import { openLake } from '../../src/lake/query/lake.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { WarehouseDouble } from './entries-double.ts';

const WEEK_MS = 7 * 86_400_000;

export interface LakeWorld {
  readonly folder: string;
  readonly warehouse: WarehouseDouble;
  readonly deps: LakeDeps;
  rows(sql: string): Promise<readonly unknown[][]>;
}

export async function lakeWorld(): Promise<LakeWorld> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-lake-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const warehouse = new WarehouseDouble();
  const objects = openFileStore(join(folder, 'objects'));
  const scratchDir = join(folder, 'scratch');
  const deps: LakeDeps = {
    repository: warehouse,
    objects,
    scratchDir,
    retentionMs: WEEK_MS,
  };
  return {
    folder: join(folder, 'objects'),
    warehouse,
    deps,
    rows: async (sql) => {
      await using lake = await openLake(
        { objects, scratchDir },
        new AbortController().signal,
      );
      return (await lake.connection.runAndReadAll(sql)).getRowsJson();
    },
  };
}
