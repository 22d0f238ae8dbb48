/**
 * The lake's tables, read and changed by engines that nobody here wrote: `npm run
 * test:engines` installs them.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { buildLake, type LakeDeps } from '../../src/lake/build/build.ts';
import { commitTable } from '../lake/commit-table.ts';
import { vacuumLake } from '../../src/lake/overview.ts';
import { verifyLake } from '../../src/lake/verify/verify-lake.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { openObjectStore } from '../../src/storage/open-store.ts';
import { WarehouseDouble } from '../lake/entries-double.ts';
import { startCeph } from '../support/stores/ceph.ts';
import { awsVariables, storeUrl } from '../support/stores/real-store.ts';
import { segmentOf, shownRows } from './segments.ts';

const run = promisify(execFile);
const SCRIPT = join(import.meta.dirname, 'engine.py');
const BUILDER = join(import.meta.dirname, 'builder.ts');
const README = join(import.meta.dirname, '../../README.md');
const OUTPUT_BYTES_MAX = 2 ** 26;
const WEEK_MS = 7 * 86_400_000;
/** With every engine: Spark alone takes minutes on a busy machine. */
const SPARK_MS_MAX = 1_800_000;
const signal = new AbortController().signal;

/** The Python of an engine; undefined where it was not installed. */
const python = (name: string): string | undefined =>
  process.env[`ENGINE_${name.toUpperCase()}`];
const READERS = [
  'deltalake',
  'duckdb',
  'polars',
  'chdb',
  'daft',
  'spark',
].filter((name) => python(name));
const LINES = [
  ['duckdb', 'duckdb'],
  ['python', 'deltalake'],
  ['spark', 'spark'],
].filter(([, engine]) => python(engine ?? '')) as [string, string][];

async function ask(
  engine: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<unknown> {
  const options = {
    env: { ...process.env, ...env },
    maxBuffer: OUTPUT_BYTES_MAX,
  };
  const { stdout } = await run(
    python(engine) ?? '',
    [SCRIPT, ...args],
    options,
  );
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
}

interface World {
  readonly folder: string;
  readonly table: string;
  readonly warehouse: WarehouseDouble;
  readonly deps: LakeDeps;
}

async function world(): Promise<World> {
  const parent = await mkdtemp(join(tmpdir(), 'ledger-mirror-engines-'));
  onTestFinished(() => rm(parent, { recursive: true, force: true }));
  const folder = join(parent, 'objects');
  const warehouse = new WarehouseDouble();
  const objects = openFileStore(folder);
  const scratchDir = join(parent, 'scratch');
  const deps = {
    repository: warehouse,
    objects,
    scratchDir,
    retentionMs: WEEK_MS,
  };
  return {
    folder,
    table: join(folder, 'lake/ledger_entries'),
    warehouse,
    deps,
  };
}

async function buildOf(
  { warehouse, deps }: Pick<World, 'warehouse' | 'deps'>,
  count: number,
): Promise<void> {
  warehouse.segments = Array.from({ length: count }, (_, index) =>
    segmentOf(index + 1),
  );
  await buildLake(deps, signal);
}

describe.each(READERS)('%s', (engine) => {
  test('reads every row, digit, time and month, at each version, behind a checkpoint', async () => {
    const lake = await world();
    await buildOf(lake, 1);
    for (let version = 1; version < 29; version += 1) {
      const actions = [{ txn: { appId: 'other', version } }];
      await commitTable(
        lake.deps.objects,
        'lake/ledger_entries',
        version,
        { operation: 'WRITE', actions },
        signal,
      );
    }
    await buildOf(lake, 2);
    await buildOf(lake, 3);
    expect(await ask(engine, [engine, lake.table])).toEqual(
      shownRows([1, 2, 3].map(segmentOf)),
    );
    expect(await ask(engine, [engine, lake.table, '29'])).toEqual(
      shownRows([1, 2].map(segmentOf)),
    );
  });
});

describe.each(LINES)("README's line for %s", (line, engine) => {
  test('runs on a folder', async () => {
    const lake = await world();
    await buildOf(lake, 2);
    const env = { README, LAKE: join(lake.folder, 'lake') };
    expect(await ask(engine, ['readme', line], env)).toEqual(expectedOf(line));
  });
});

function expectedOf(line: string): unknown {
  if (line === 'duckdb') return [['40', '9'.repeat(38)]];
  if (line === 'python') return 40;
  return [
    ['2023-04', 10],
    ['2023-05', 20],
    ['2023-06', 10],
  ];
}

/**
 * What a reader that opened the table before sees after builds that replace all of it,
 * and a vacuum.
 */
async function readHeld(
  lake: Pick<World, 'table' | 'warehouse' | 'deps'>,
  segments: number,
  env: Readonly<Record<string, string>> = {},
): Promise<unknown> {
  const options = { env: { ...process.env, ...env } };
  const reader = spawn(
    python('deltalake') ?? '',
    [SCRIPT, 'hold', lake.table],
    options,
  );
  let output = '';
  reader.stdout.on('data', (text: Buffer) => {
    output += text.toString();
  });
  await once(reader.stdout, 'data');
  for (const more of [1, 2]) await buildOf(lake, segments + more);
  lake.warehouse.segments = [segmentOf(9)];
  await buildLake(lake.deps, signal);
  await vacuumLake(lake.deps, signal);
  reader.stdin.end('\n');
  await once(reader, 'close');
  return JSON.parse(output.trim().split('\n').at(-1) ?? '');
}

describe.runIf(python('deltalake'))('delta-rs', () => {
  test('delta-rs reads what it opened, over three builds and a vacuum', async () => {
    const lake = await world();
    await buildOf(lake, 1);
    expect(await readHeld(lake, 1)).toEqual(shownRows([segmentOf(1)]));
  });

  test('delta-rs compacts and vacuums a table, which the next build goes on from', async () => {
    const lake = await world();
    for (const count of [1, 2, 3]) await buildOf(lake, count);
    expect(await ask('deltalake', ['compact', lake.table])).toBe(9);
    expect(await ask('deltalake', ['vacuum', lake.table])).toBeGreaterThan(0);
    await buildOf(lake, 4);
    expect(await ask('deltalake', ['deltalake', lake.table])).toEqual(
      shownRows([1, 2, 3, 4].map(segmentOf)),
    );
    lake.warehouse.segments = [segmentOf(2), segmentOf(4)];
    await buildLake(lake.deps, signal);
    expect(await ask('deltalake', ['deltalake', lake.table])).toEqual(
      shownRows([2, 4].map(segmentOf)),
    );
    expect(await verifyLake(lake.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  test('delta-rs reads the state before or after, wherever a build is killed', async () => {
    const lake = await world();
    await buildOf(lake, 1);
    const before = shownRows([segmentOf(1)]);
    const after = shownRows([1, 2].map(segmentOf));
    let isDone = false;
    for (let nth = 1; !isDone; nth += 1) {
      const child = spawn(process.execPath, [
        BUILDER,
        lake.folder,
        '2',
        String(nth),
        String(nth),
      ]);
      const [code] = (await once(child, 'close')) as [number | null];
      isDone = code === 0;
      expect([before, after]).toContainEqual(
        await ask('deltalake', ['deltalake', lake.table]),
      );
    }
    expect(await ask('deltalake', ['deltalake', lake.table])).toEqual(after);
  });

  test('delta-rs reads every row where two builders without a lock race', async () => {
    const lake = await world();
    await buildOf(lake, 1);
    const builders = ['3', '3'].map((count) =>
      once(
        spawn(process.execPath, [BUILDER, lake.folder, count, '0', '5']),
        'close',
      ),
    );
    const codes = (await Promise.all(builders)).map(
      ([code]: unknown[]) => code,
    );
    expect(codes).toContain(0);
    expect(await ask('deltalake', ['deltalake', lake.table])).toEqual(
      shownRows([1, 2, 3].map(segmentOf)),
    );
  });
});

describe.runIf(READERS.length > 0 && process.env['ENGINES_S3'] !== 'no')(
  'a lake on Ceph',
  () => {
    test(
      "a lake on Ceph is read by its engines, by README's lines, and by who opened it three builds and a vacuum ago",
      async () => {
        await using ceph = await startCeph();
        const scratchDir = await mkdtemp(
          join(tmpdir(), 'ledger-mirror-engines-'),
        );
        onTestFinished(() => rm(scratchDir, { recursive: true, force: true }));
        const aws = awsVariables(ceph.keys);
        await using objects = await openObjectStore({
          url: storeUrl(ceph, 'engines'),
          spoolDir: join(scratchDir, 'spool'),
          ambient: { ...aws, AWS_REGION: 'us-east-1' },
        });
        const warehouse = new WarehouseDouble();
        const deps = {
          repository: warehouse,
          objects,
          scratchDir,
          retentionMs: WEEK_MS,
        };
        await buildOf({ warehouse, deps }, 1);
        await buildOf({ warehouse, deps }, 2);
        expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
          problems: [],
          segmentsBehind: 0,
        });
        const env = {
          ...aws,
          AWS_ENDPOINT_URL: ceph.endpoint,
          AWS_REGION: 'us-east-1',
          AWS_ALLOW_HTTP: 'true',
          README,
          LAKE: `s3://${ceph.bucket}/engines/lake`,
        };
        const table = `${env.LAKE}/ledger_entries`;
        for (const engine of READERS)
          expect(await ask(engine, [engine, table], env)).toEqual(
            shownRows([1, 2].map(segmentOf)),
          );
        for (const [line, engine] of LINES)
          expect(await ask(engine, ['readme', line], env)).toEqual(
            expectedOf(line),
          );
        if (python('deltalake') === undefined) return;
        const held = await readHeld({ table, warehouse, deps }, 2, env);
        expect(held).toEqual(shownRows([1, 2].map(segmentOf)));
      },
      SPARK_MS_MAX,
    );
  },
);
