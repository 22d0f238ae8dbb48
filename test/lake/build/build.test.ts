import { readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { buildLake, type LakeDeps } from '../../../src/lake/build/build.ts';
import { LAKE_TABLES } from '../../../src/lake/tables/columns.ts';
import { commitTable } from '../commit-table.ts';
import { SMALL_FILES_MAX } from '../../../src/lake/build/entries-plan.ts';
import { describeLake, restoreLake, vacuumLake } from '../../../src/lake/overview.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { entry, type SegmentRows } from '../entries-double.ts';
import { lakeWorld, type LakeWorld } from '../lake-world.ts';

const signal = new AbortController().signal;
const [A, B] = ['aa'.repeat(32), 'bb'.repeat(32)];
const ENTRIES = 'lake/ledger_entries';

function segment(segmentId: number, count = 1, isOpen = false): SegmentRows {
  const rows = Array.from({ length: count }, () =>
    entry({ party_id: A, account_from_party_id: A, account_to_party_id: B }),
  );
  return { segmentId: BigInt(segmentId), isOpen, rows };
}

async function built(...segments: readonly SegmentRows[]): Promise<LakeWorld> {
  const world = await lakeWorld();
  world.warehouse.segments = segments;
  await buildLake(world.deps, signal);
  return world;
}

async function parquetOf({ folder }: LakeWorld, table = ENTRIES): Promise<readonly string[]> {
  const names = await readdir(join(folder, table), { recursive: true });
  return names.filter((name) => name.endsWith('.parquet') && !name.includes('_delta_log')).toSorted();
}

interface LoggedAction {
  readonly add?: { readonly path: string; readonly dataChange: boolean; readonly stats: string };
  readonly remove?: { readonly path: string; readonly dataChange: boolean };
  readonly txn?: { readonly appId: string; readonly version: number };
  readonly metaData?: { readonly schemaString: string; readonly configuration: Record<string, string> };
}

async function logged({ folder }: LakeWorld, version: number): Promise<readonly LoggedAction[]> {
  const path = join(folder, ENTRIES, '_delta_log', `${String(version).padStart(20, '0')}.json`);
  const lines = (await readFile(path, 'utf8')).trim().split('\n');
  return lines.map((line) => JSON.parse(line) as LoggedAction);
}

const codes = async (deps: LakeDeps, deep = false): Promise<readonly string[]> =>
  (await verifyLake(deps, { deep }, signal)).problems.map(({ code }) => code);

describe('a build of the lake', () => {
  it('appends new segments and leaves every file that is there', async () => {
    const world = await built(segment(1, 50));
    const before = await parquetOf(world);
    world.warehouse.segments = [segment(1, 50), segment(2, 3)];

    await buildLake(world.deps, signal);

    const after = await parquetOf(world);
    expect(after).toEqual(expect.arrayContaining([...before]));
    expect(after).toHaveLength(before.length + 1);
    expect((await logged(world, 1)).filter(({ remove }) => remove)).toEqual([]);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([['53']]);
  });

  it.each([5, 15])('takes a row of %s million bytes beside others', async (millions) => {
    const long = entry({
      party_id: A,
      account_from_party_id: A,
      account_from_market_id: 'm'.repeat(millions * 1e6),
    });
    const world = await built({ segmentId: 1n, rows: [...segment(1, 300).rows, long] });
    expect(
      await world.rows('select count(*), max(length(account_from_market_id)) from ledger_entries'),
    ).toEqual([['301', String(millions * 1e6)]]);
  });

  it('replaces open segments without writing a closed row again', async () => {
    const world = await built(segment(1, 20), segment(2, 5, true));
    world.warehouse.segments = [segment(1, 20), segment(3, 2), segment(4, 1, true)];

    await buildLake(world.deps, signal);

    const actions = await logged(world, 1);
    const added = actions.flatMap(({ add }) =>
      add ? [JSON.parse(add.stats) as { numRecords: number }] : [],
    );
    expect(added.map(({ numRecords }) => numRecords).toSorted((a, b) => a - b)).toEqual([1, 2]);
    expect(actions.filter(({ remove }) => remove)).toHaveLength(1);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  it('takes a segment that is gone out of the file that holds it', async () => {
    const world = await built(segment(1, 4), segment(2, 5), segment(3, 6));
    world.warehouse.segments = [segment(1, 4), segment(3, 6)];
    await buildLake(world.deps, signal);
    expect(await world.rows('select segment_id, count(*) from ledger_entries group by 1 order by 1')).toEqual(
      [
        ['1', '4'],
        ['3', '6'],
      ],
    );
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  it('puts small files together when they are many, without a change of rows', async () => {
    const world = await built(segment(1));
    for (let night = 2; night <= SMALL_FILES_MAX + 1; night += 1) {
      world.warehouse.segments = Array.from({ length: night }, (_, index) => segment(index + 1));
      await buildLake(world.deps, signal);
    }
    const { tables } = await describeLake(world.deps, signal);
    expect(tables).toContainEqual(
      expect.objectContaining({ table: 'ledger_entries', files: 1, rows: BigInt(SMALL_FILES_MAX + 1) }),
    );
    const compaction = await logged(world, SMALL_FILES_MAX + 1);
    const changes = compaction.flatMap(({ add, remove }) => [add, remove]).filter((change) => change);
    expect(changes).toHaveLength(SMALL_FILES_MAX + 2);
    expect(changes.every((change) => change?.dataChange === false)).toBe(true);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  it('carries its application and number, and keeps amounts out of statistics', async () => {
    const world = await built(segment(1));
    const actions = await logged(world, 0);
    expect(actions.flatMap(({ txn }) => txn ?? [])).toMatchObject([
      { appId: `ledger-mirror:${world.warehouse.mirrorId}`, version: 1 },
    ]);
    const [metaData] = actions.flatMap((action) => action.metaData ?? []);
    const withStatistics = metaData?.configuration['delta.dataSkippingStatsColumns']?.split(',');
    expect(withStatistics).toContain('vega_time');
    expect(withStatistics).not.toContain('quantity');
    expect(actions.flatMap(({ add }) => add?.stats ?? []).join('')).not.toContain('"quantity"');
  });

  it('writes a checkpoint every thirty commits, which reads as the commits do', async () => {
    const world = await built(segment(1));
    const { objects } = world.deps;
    for (let version = 1; version < 29; version += 1) {
      const txn = { appId: 'another', version };
      await commitTable(objects, ENTRIES, version, { operation: 'WRITE', actions: [{ txn }] }, signal);
    }
    world.warehouse.segments = [segment(2, 1, true)];
    await buildLake(world.deps, signal);
    const log = await readdir(join(world.folder, ENTRIES, '_delta_log'));
    expect(log.filter((name) => !name.endsWith('.json'))).toEqual([
      '00000000000000000029.checkpoint.parquet',
      '_last_checkpoint',
    ]);
    // Without the commits that it stands for.
    for (const name of log.filter((file) => file.endsWith('.json')))
      await rm(join(world.folder, ENTRIES, '_delta_log', name));
    expect(await world.rows('select segment_id from ledger_entries')).toEqual([['2']]);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  it('says each day which rows count, by what other parties cover', async () => {
    const world = await lakeWorld();
    const received = entry({ party_id: B, account_from_party_id: A, account_to_party_id: B });
    world.warehouse.segments = [{ segmentId: 1n, rows: [received] }];
    const flows = (): Promise<readonly unknown[][]> =>
      world.rows(`select (select count(*) from ledger_entries where is_counted),
        (select coalesce(sum(entries), 0) from daily_flows)`);
    for (const [range, counted] of [
      [undefined, '1'],
      ['2023-05-02 00:00:00', '0'],
      ['2023-05-01 00:00:00', '1'],
      ['2023-05-03 00:00:00', '0'],
    ] as const) {
      world.warehouse.covered = range === undefined ? [] : [[A, '', '2023-04-01 00:00:00', range, true]];
      await buildLake(world.deps, signal);
      expect(await flows()).toEqual([[counted, counted]]);
    }
    expect(await parquetOf(world)).toHaveLength(1);
  });

  it('stops where another writer has committed meanwhile, and goes on from there the next time', async () => {
    const world = await built(segment(1));
    world.warehouse.segments = [segment(1), segment(2)];
    const { objects } = world.deps;
    const foreign = { operation: 'WRITE', actions: [{ txn: { appId: 'another', version: 1 } }] };
    let isFirst = true;
    const raced = new Proxy(objects, {
      get: (store, name) => {
        const own: unknown = Reflect.get(store, name);
        if (typeof own !== 'function' || name !== 'putIfAbsent')
          return typeof own === 'function' ? (own.bind(store) as unknown) : own;
        return async (...given: readonly unknown[]): Promise<unknown> => {
          if (isFirst && String(given[0]).startsWith(ENTRIES)) {
            isFirst = false;
            await commitTable(store, ENTRIES, 1, foreign, signal);
          }
          return Reflect.apply(own, store, given) as unknown;
        };
      },
    });
    await expect(buildLake({ ...world.deps, objects: raced }, signal)).rejects.toMatchObject({
      code: 'LAKE_SECOND_WRITER',
    });
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([['1']]);
    await buildLake(world.deps, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([['2']]);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  it('writes everything anew, in the same tables, for a database that does not know them', async () => {
    const world = await built(segment(1, 3));
    world.warehouse.forget();
    world.warehouse.segments = [segment(1, 2)];
    await buildLake(world.deps, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([['2']]);
    expect(await logged(world, 1)).toHaveLength(4);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  it('adds columns that an older table lacks', async () => {
    const world = await built(segment(1));
    const path = join(world.folder, ENTRIES, '_delta_log', `${'0'.repeat(20)}.json`);
    const text = await readFile(path, 'utf8');
    // As an earlier version would have made it: without `side`, which its file then lacks as well.
    const side = /,\{\\"name\\":\\"side\\".*?\}\}(?=,\{\\"name\\":\\"month)/;
    expect(text).toMatch(side);
    await writeFile(path, text.replace(side, ''));
    world.warehouse.segments = [segment(1), segment(2)];
    await buildLake(world.deps, signal);
    const [metaData] = (await logged(world, 1)).flatMap((action) => action.metaData ?? []);
    expect(metaData?.schemaString).toContain('"name":"side"');
    expect(await codes(world.deps, true)).toEqual([]);
  });
});

describe('a lake that exists', () => {
  it('keeps what a version names for the retention, and removes it then', async () => {
    const world = await built(segment(1, 2, true));
    const [old = ''] = await parquetOf(world);
    world.warehouse.segments = [segment(2, 3, true)];
    await buildLake(world.deps, signal);
    expect(await vacuumLake(world.deps, signal)).toBe(0);
    expect(await parquetOf(world)).toContain(old);
    // A file of nobody's that is old enough.
    const stray = join(world.folder, ENTRIES, 'month=2023-05', 'part-stray.parquet');
    await writeFile(stray, 'x');
    await utimes(stray, new Date(0), new Date(0));
    expect(await vacuumLake(world.deps, signal)).toBe(1);

    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await vacuumLake({ ...world.deps, retentionMs: 1 }, signal)).toBeGreaterThan(1);
    expect(await parquetOf(world)).not.toContain(old);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([['3']]);
    expect(await codes(world.deps, true)).toEqual([]);
  });

  it('is unchanged after a restore until the next load', async () => {
    const world = await built(segment(1, 2));
    world.warehouse.segments = [segment(1, 2), segment(2, 3)];
    await buildLake(world.deps, signal);
    const { version } = await restoreLake(world.deps, 1, signal);
    expect(version).toBe(3);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([['2']]);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 1,
    });
    await buildLake(world.deps, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([['5']]);
    await expect(restoreLake(world.deps, 99, signal)).rejects.toThrow('there is no moment 99');
  });

  it.each([
    ['deleted', 'LAKE_MISSING', (world: LakeWorld) => rm(join(world.folder, 'lake'), { recursive: true })],
    [
      'without a table',
      'LAKE_TABLE_MISSING',
      (world: LakeWorld) => rm(join(world.folder, 'lake/parties'), { recursive: true }),
    ],
    [
      'with a file that was changed',
      'LAKE_FILE_CORRUPT',
      async (world: LakeWorld) =>
        writeFile(join(world.folder, ENTRIES, (await parquetOf(world))[0] ?? ''), 'PAR1'),
    ],
    [
      'with a commit that was cut off',
      'LAKE_LOG_BROKEN',
      (world: LakeWorld) =>
        writeFile(join(world.folder, ENTRIES, '_delta_log', `${'0'.repeat(20)}.json`), '{"add":'),
    ],
    [
      'with a hint to a checkpoint that is not there',
      'LAKE_CHECKPOINT_BROKEN',
      (world: LakeWorld) =>
        writeFile(join(world.folder, ENTRIES, '_delta_log', '_last_checkpoint'), '{"version":7,"size":1}'),
    ],
  ])('%s is a fault with a name', async (_name, code, damage) => {
    const world = await built(segment(1, 2));
    world.warehouse.parties = [A];
    await buildLake(world.deps, signal);
    await damage(world);
    expect(await codes(world.deps)).toContain(code);
  });

  it('is read by a nightly run as far as it is new, and one in so many of its other files', async () => {
    const world = await built(segment(1, 2));
    const nightly = (parts: number): ReturnType<typeof verifyLake> =>
      verifyLake(world.deps, { deep: false, parts }, signal);
    const first = await nightly(4);
    expect(first).toMatchObject({ filesRead: first.files, problems: [] });
    expect(await nightly(4)).toMatchObject({ filesRead: Math.ceil(first.files / 4), problems: [] });
    world.warehouse.segments = [segment(1, 2), segment(2, 3)];
    expect(await nightly(first.files)).toMatchObject({ filesRead: 1, segmentsBehind: 1 });
    await buildLake(world.deps, signal);
    const later = await nightly(first.files);
    expect(later).toMatchObject({ problems: [], segmentsBehind: 0 });
    expect(later.filesRead).toBeLessThan(later.files);

    const path = join(world.folder, ENTRIES, (await parquetOf(world))[0] ?? '');
    const content = await readFile(path);
    content[content.length >> 1] = 255 - (content[content.length >> 1] ?? 0);
    await rm(path);
    await writeFile(path, content);
    const found: string[] = [];
    // Within as many nights as there are parts, each file has its turn.
    for (let night = 0; night < later.files; night += 1)
      found.push(...(await nightly(later.files)).problems.map(({ code }) => code));
    expect(new Set(found)).toEqual(new Set(['LAKE_FILE_CORRUPT']));
    await rm(path);
    expect((await nightly(1_000)).problems.map(({ code }) => code)).toEqual(['OBJECT_MISSING']);
  });

  it.each([
    ['other rows than were loaded', 'LAKE_DIFFERS', [segment(1, 9)]],
    ['nothing of what was loaded', undefined, [segment(7)]],
  ] as const)(
    'with %s is found by a nightly run, which reads no file for it',
    async (_name, code, loaded) => {
      const world = await built(segment(1, 2));
      await verifyLake(world.deps, { deep: false }, signal);
      world.warehouse.segments = loaded;
      const found = await verifyLake(world.deps, { deep: false, parts: 1_000 }, signal);
      expect(found.problems.map((problem) => problem.code)).toEqual(code === undefined ? [] : [code]);
      expect(found.segmentsBehind).toBe(code === undefined ? 2 : 0);
    },
  );

  it('is refused as a fault where it is of another mirror', async () => {
    const world = await built(segment(1, 2));
    world.warehouse.mirrorId = '00000000-0000-4000-8000-000000000002';
    await expect(buildLake(world.deps, signal)).rejects.toMatchObject({ code: 'LAKE_FOREIGN' });
  });

  it('is a fault and brought up to date where it is of an older backup', async () => {
    const world = await built(segment(1, 2));
    world.warehouse.segments = [segment(1, 2), segment(2, 2)];
    await buildLake(world.deps, signal);
    for (const table of LAKE_TABLES) {
      const log = join(world.folder, 'lake', table, '_delta_log');
      await rm(join(log, '00000000000000000001.json'), { force: true });
    }
    await rm(join(world.folder, 'lake/moments/00000000000000000002.json'));
    expect(await codes(world.deps)).toContain('LAKE_TABLE_OLDER');
    await buildLake(world.deps, signal);
    expect(await codes(world.deps, true)).toEqual([]);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([['4']]);
  });

  it('is refused by name where another writer raised it', async () => {
    const world = await built(segment(1, 2));
    const protocol = {
      minReaderVersion: 3,
      minWriterVersion: 7,
      readerFeatures: ['deletionVectors'],
      writerFeatures: ['deletionVectors'],
    };
    await commitTable(
      world.deps.objects,
      ENTRIES,
      1,
      { operation: 'UPGRADE', actions: [{ protocol }] },
      signal,
    );
    await expect(buildLake(world.deps, signal)).rejects.toMatchObject({ code: 'LAKE_TABLE_RAISED' });
  });

  it('names no file outside of its tables', async () => {
    const world = await built(segment(1, 2));
    for (const path of ['../../../etc/passwd', '%2e%2e/x.parquet', 'file:///etc/passwd', '/etc/passwd']) {
      const outside = await built(segment(1, 2));
      const add = { path, partitionValues: {}, size: 1, modificationTime: 0, dataChange: true };
      const commit = { operation: 'WRITE', actions: [{ add }] };
      await commitTable(outside.deps.objects, ENTRIES, 1, commit, signal);
      await expect(buildLake(outside.deps, signal)).rejects.toMatchObject({ code: 'LAKE_PATH_REFUSED' });
    }
    expect(await codes(world.deps)).toEqual([]);
  });

  it('mends a broken checkpoint, which the commits make needless', async () => {
    const world = await built(segment(1));
    const log = join(world.folder, ENTRIES, '_delta_log');
    await writeFile(join(log, '00000000000000000000.checkpoint.parquet'), 'PAR1 no more PAR1');
    await writeFile(join(log, '_last_checkpoint'), '{"version":0,"size":3}');
    expect(await codes(world.deps)).toEqual(['LAKE_CHECKPOINT_BROKEN', 'LAKE_CHECKPOINT_BROKEN']);
    const { tables } = await describeLake(world.deps, signal);
    expect(tables.find(({ table }) => table === 'ledger_entries')).toMatchObject({ mended: 2 });
    expect(await codes(world.deps)).toEqual([]);
    expect(await readdir(log)).toEqual(['00000000000000000000.json']);
    await writeFile(join(log, '00000000000000000000.checkpoint.parquet'), 'PAR1 no more PAR1');
    await writeFile(join(log, '_last_checkpoint'), '{"version":0,"size":3}');
    await buildLake(world.deps, signal);
    expect(await readdir(log)).toEqual(['00000000000000000000.json']);
  });
});
