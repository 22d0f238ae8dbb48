/**
 * kill -9 of the process that loads, or builds the lake; what comes after ends with
 * exactly the rows.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { buildLake, type LakeDeps } from '../../../src/lake/build/build.ts';
import { readSnapshot } from '../../../src/lake/snapshot.ts';
import { describeLake } from '../../../src/lake/overview.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { loadAll } from '../../../src/warehouse/load-all.ts';
import { verify, type VerifyReport } from '../../../src/warehouse/verify.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { LakeStore } from '../../../src/lake/store/lake-store.ts';
import { LoadStore } from '../../../src/warehouse/store/load-store.ts';
import { VerifyStore } from '../../../src/warehouse/store/verify-store.ts';
import { freshDatabase } from '../../support/database.ts';
import { runScript } from '../../support/process.ts';
import { HEADER_13 } from '../../ledger/csv.ts';
import {
  PARTY_A,
  PARTY_B,
  publish,
  row13,
  temporaryStore,
} from '../published.ts';
import { loadedRows } from '../../support/mirror-state.ts';

const WORKER = join(import.meta.dirname, 'killed-worker.ts');
const ROWS = 3_000;
const MONTHS = 4;
const signal = new AbortController().signal;
const database = await freshDatabase({ isMigrated: true });

async function killAt(
  stage: 'load' | 'lake',
  folder: string,
  nth: number,
): Promise<void> {
  await using child = runScript(WORKER, [
    stage,
    database.url,
    folder,
    `${nth}`,
  ]);
  expect(await child.end()).toEqual({ code: null, signal: 'SIGKILL' });
}

async function countRows(): Promise<number> {
  return loadedRows(database.pool);
}

function rowsOf(party: string): string[] {
  return Array.from({ length: ROWS }, (_, n) =>
    row13(
      {
        time: `2023-0${1 + (n % MONTHS)}-01 00:00:00.${String(n).padStart(6, '0')}+00`,
        from: party,
      },
      party,
    ),
  );
}

test('a process killed amid COPY or a build leaves nothing half visible, and the next one completes it', async () => {
  const objects = await temporaryStore();
  const folder = fileURLToPath(objects.url);
  const range = {
    from: '2023-01-01T00:00:00Z',
    to: '2024-01-01T00:00:00Z',
    header: HEADER_13,
  };
  for (const party of [PARTY_A, PARTY_B])
    await publish(database.pool, objects, {
      ...range,
      party,
      rows: rowsOf(party),
    });
  const warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const lake: LakeDeps = {
    repository: new LakeStore(warehouse.pool),
    objects,
    scratchDir: join(folder, 'scratch'),
    retentionMs: 7 * 86_400_000,
  };
  const verifyAll = (): Promise<VerifyReport> =>
    verify(
      {
        repository: new VerifyStore(warehouse),
        objects,
        lake: (options, either) => verifyLake(lake, options, either),
      },
      signal,
      { deep: true },
    );
  try {
    for (const nth of [1, 13, 33]) {
      await killAt('load', folder, nth);
      expect((await countRows()) % ROWS).toBe(0);
      expect(await verifyAll()).toMatchObject({
        verdict: 'complete',
        problems: [],
      });
    }
    const loaded = await loadAll(
      { repository: new LoadStore(warehouse), objects },
      signal,
    );
    expect(loaded.verdict).toBe('complete');
    expect(await countRows()).toBe(2 * ROWS);

    // Before the first file, the first commit, the commit of entries, and summaries: each
    // goes on from the last.
    for (const nth of [1, 2, 11, 12, 18, 11]) {
      await killAt('lake', folder, nth);
      expect(await readSnapshot({ objects, signal })).toBeUndefined();
      expect(await verifyAll()).toMatchObject({
        verdict: 'complete',
        problems: [],
      });
    }
    await buildLake(lake, signal);
    expect(await verifyAll()).toMatchObject({
      checked: { lakeSegmentsBehind: 0 },
    });
    expect(await verifyAll()).toMatchObject({
      verdict: 'complete',
      problems: [],
    });
    expect(await readdir(join(folder, '.spool')).catch(() => [])).toEqual([]);
    const { tables } = await describeLake(lake, signal);
    expect(tables).toContainEqual(
      expect.objectContaining({
        table: 'ledger_entries',
        version: 0,
        files: MONTHS,
        rows: BigInt(2 * ROWS),
      }),
    );
  } finally {
    await warehouse[Symbol.asyncDispose]();
  }
});
