/**
 * kill -9 of the process that builds the lake on S3: readers see the lake before or
 * after, and the next build ends it.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { buildLake, type LakeDeps } from '../../../src/lake/build/build.ts';
import { appIdOf } from '../../../src/lake/build/build-session.ts';
import { listObjects } from '../../../src/lake/delta/listing.ts';
import { readTable } from '../../../src/lake/delta/log.ts';
import { commitTable } from '../commit-table.ts';
import { openDuckDb } from '../../../src/lake/local/duckdb.ts';
import { openLake } from '../../../src/lake/query/lake.ts';
import { LakeStore } from '../../../src/lake/store/lake-store.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { loadAll } from '../../../src/warehouse/load-all.ts';
import { LoadStore } from '../../../src/warehouse/store/load-store.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { HEADER_13 } from '../../ledger/csv.ts';
import { PARTY_A, publish, row13 } from '../../warehouse/published.ts';
import { freshDatabase } from '../../support/database.ts';
import { runScript } from '../../support/process.ts';
import { openDoubleStore, S3Double } from '../../support/stores/s3-double.ts';

const WORKER = join(import.meta.dirname, 'killed-worker.ts');
const ROWS = 40;
const COMMITS_BETWEEN_CHECKPOINTS = 30;
const signal = new AbortController().signal;

interface World extends AsyncDisposable {
  readonly double: S3Double;
  readonly deps: LakeDeps;
  /** One more month of entries is exported and loaded. */
  load(): Promise<void>;
  killAt(step: string): Promise<void>;
  /** Undefined while there is no lake. */
  countRows(): Promise<number | undefined>;
}

async function openWorld(): Promise<World> {
  const database = await freshDatabase({ isMigrated: true });
  const scratchDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-killed-'));
  onTestFinished(() => rm(scratchDir, { recursive: true, force: true }));
  await using stack = new AsyncDisposableStack();
  const double = stack.use(await S3Double.start());
  const warehouse = stack.use(
    openWarehouse({ url: database.url, onIdleError: () => undefined }),
  );
  const objects = stack.use(
    openDoubleStore(double.endpoint, join(scratchDir, 'spool')),
  );
  const deps = {
    repository: new LakeStore(warehouse.pool),
    objects,
    scratchDir,
    retentionMs: 7 * 86_400_000,
  };
  let month = 0;
  const load = async (): Promise<void> => {
    month += 1;
    const from = `2023-0${month}-01T00:00:00Z`;
    const to = `2023-0${month + 1}-01T00:00:00Z`;
    const rows = Array.from({ length: ROWS }, (_, n) =>
      row13(
        { time: `2023-0${month}-02 00:00:00.0000${10 + n}+00`, from: PARTY_A },
        PARTY_A,
      ),
    );
    await publish(database.pool, objects, {
      party: PARTY_A,
      from,
      to,
      header: HEADER_13,
      rows,
    });
    await loadAll({ repository: new LoadStore(warehouse), objects }, signal);
  };
  const killAt = async (step: string): Promise<void> => {
    await using child = runScript(WORKER, [
      database.url,
      double.endpoint,
      scratchDir,
      step,
    ]);
    expect([step, await child.end()]).toEqual([
      step,
      { code: null, signal: 'SIGKILL' },
    ]);
  };
  const countRows = async (): Promise<number | undefined> => {
    try {
      await using lake = await openLake(
        { ...deps, sql: 'ledger_entries' },
        signal,
      );
      const result = await lake.connection.runAndReadAll(
        'select count(*) from ledger_entries',
      );
      return Number(result.getRowsJson()[0]?.[0]);
    } catch (error) {
      if ((error as { code?: string }).code === 'LAKE_MISSING')
        return undefined;
      throw error;
    }
  };
  const owned = stack.move();
  return {
    double,
    deps,
    load,
    killAt,
    countRows,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function expectWhole(world: World, rows: number): Promise<void> {
  expect(await world.countRows()).toBe(rows);
  const found = await verifyLake(world.deps, { deep: true }, signal);
  expect(found).toMatchObject({ problems: [], segmentsBehind: 0 });
}

test('a build killed after a file, a commit or its end leaves the earlier lake, and nothing is committed twice', async () => {
  await using world = await openWorld();
  await world.load();
  for (const step of [
    'done publishFile lake/ledger_entries/',
    'done putIfAbsent lake/ledger_entries/_delta_log/',
    'putIfAbsent lake/monthly_activity/_delta_log/',
    'publishBytes lake/moments/',
  ]) {
    await world.killAt(step);
    expect(await world.countRows()).toBeUndefined();
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
    });
  }
  // The moment is the lake; that the database was not told of it is no fault.
  await world.killAt('record');
  await expectWhole(world, ROWS);
  await buildLake(world.deps, signal);
  await expectWhole(world, ROWS);
  const versions = [...world.double.objects.keys()].filter((key) =>
    /entries\/_delta_log\/\d+\.json/.test(key),
  );
  expect(versions).toHaveLength(1);
});

test('a build killed around a commit that the database decides is completed by the next one', async () => {
  await using world = await openWorld();
  world.double.conditions = 'ignored';
  await world.load();
  await buildLake(world.deps, signal);
  await world.load();
  for (const step of [
    'done decideCommit \\S+ ledger_entries',
    'forgetContent \\S+ daily_flows',
  ]) {
    await world.killAt(step);
    expect(await world.countRows()).toBe(ROWS);
  }
  await buildLake(world.deps, signal);
  await expectWhole(world, 2 * ROWS);
});

test('a build killed between a checkpoint and its pointer leaves a readable table, and the next one goes on', async () => {
  await using world = await openWorld();
  const { deps } = world;
  await world.load();
  await buildLake(deps, signal);
  await fillLogs(world, ['ledger_entries', 'daily_flows']);
  await world.load();
  for (const step of [
    'done publishFile lake/ledger_entries/_delta_log/',
    'publishBytes lake/daily_flows/_delta_log/_last_checkpoint',
  ]) {
    await world.killAt(step);
    expect(await world.countRows()).toBe(ROWS);
    expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
      problems: [],
    });
  }
  await buildLake(deps, signal);
  await expectWhole(world, 2 * ROWS);
  const checkpoints = [...world.double.objects.keys()].filter((key) =>
    key.endsWith('.checkpoint.parquet'),
  );
  expect(checkpoints).toHaveLength(2);
});

/** Commits that change nothing, as many as lie between two checkpoints. */
async function fillLogs(
  { deps }: World,
  tables: readonly string[],
): Promise<void> {
  await using engine = await openDuckDb(deps.scratchDir);
  const listed = await listObjects({ ...deps, signal }, 'lake/');
  const access = { ...engine, objects: deps.objects, signal, listed };
  for (const table of tables) {
    const root = `lake/${table}`;
    const state = await readTable(access, root);
    const [txn] = [...(state?.txns.values() ?? [])];
    expect(txn?.appId).toContain(appIdOf(''));
    for (
      let version = 1;
      version < COMMITS_BETWEEN_CHECKPOINTS - 1;
      version += 1
    )
      await commitTable(
        deps.objects,
        root,
        version,
        { operation: 'WRITE', actions: [{ txn: txn! }] },
        signal,
      );
  }
}
