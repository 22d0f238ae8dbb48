import { readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { buildLake } from '../../../src/lake/build/build.ts';
import {
  describeLake,
  restoreLake,
  vacuumLake,
} from '../../../src/lake/overview.ts';
import { LAKE_TABLES } from '../../../src/lake/tables/columns.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { checkpointTable, commitTable } from '../commit-table.ts';
import { type LakeWorld, lakeWorld } from '../lake-world.ts';
import {
  A,
  B,
  built,
  codes,
  ENTRIES,
  parquetOf,
  segment,
  signal,
} from './built.ts';

describe('a lake that exists', () => {
  test('the lake keeps unnamed files for the retention and then removes them', async () => {
    const world = await built(segment(1, 2, true));
    const [old = ''] = await parquetOf(world);
    world.warehouse.segments = [segment(2, 3, true)];
    await buildLake(world.deps, signal);
    expect(await vacuumLake(world.deps, signal)).toBe(0);
    expect(await parquetOf(world)).toContain(old);
    // A file of nobody's that is old enough.
    const stray = join(
      world.folder,
      ENTRIES,
      'month=2023-05',
      'part-stray.parquet',
    );
    await writeFile(stray, 'x');
    await utimes(stray, new Date(0), new Date(0));
    expect(await vacuumLake(world.deps, signal)).toBe(1);

    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(
      await vacuumLake({ ...world.deps, retentionMs: 1 }, signal),
    ).toBeGreaterThan(1);
    expect(await parquetOf(world)).not.toContain(old);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['3'],
    ]);
    expect(await codes(world.deps, true)).toEqual([]);
  });

  test('vacuum keeps the commits below an unreadable checkpoint, however old it is', async () => {
    const world = await built(segment(1, 2));
    world.warehouse.segments = [segment(1, 2), segment(2, 3)];
    await buildLake(world.deps, signal);
    const broken = join(
      world.folder,
      ENTRIES,
      '_delta_log',
      '00000000000000000001.checkpoint.parquet',
    );
    await writeFile(broken, 'PAR1 no more PAR1');
    await utimes(broken, new Date(0), new Date(0));
    await vacuumLake(world.deps, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['5'],
    ]);
  });

  test('vacuum keeps the commits below an unreadable checkpoint even if a later, younger one can be read', async () => {
    const world = await built(segment(1, 2));
    world.warehouse.segments = [segment(1, 2), segment(2, 3)];
    await buildLake(world.deps, signal);
    world.warehouse.segments = [segment(1, 2), segment(2, 3), segment(3, 4)];
    await buildLake(world.deps, signal);
    await checkpointTable(world.deps, ENTRIES, signal);
    const broken = join(
      world.folder,
      ENTRIES,
      '_delta_log',
      '00000000000000000001.checkpoint.parquet',
    );
    await writeFile(broken, 'PAR1 no more PAR1');
    await utimes(broken, new Date(0), new Date(0));
    await vacuumLake(world.deps, signal);
    await restoreLake(world.deps, 2, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['5'],
    ]);
  });

  test('vacuum removes the hint to a checkpoint that it removes, left behind by a killed build', async () => {
    const world = await built(segment(1, 2));
    const log = join(world.folder, ENTRIES, '_delta_log');
    await checkpointTable(world.deps, ENTRIES, signal);
    const hint = await readFile(join(log, '_last_checkpoint'));
    world.warehouse.segments = [segment(1, 2), segment(2, 3)];
    await buildLake(world.deps, signal);
    await checkpointTable(world.deps, ENTRIES, signal);
    await writeFile(join(log, '_last_checkpoint'), hint);
    await utimes(
      join(log, '00000000000000000001.checkpoint.parquet'),
      new Date(0),
      new Date(0),
    );
    expect(await vacuumLake(world.deps, signal)).toBe(2);
    expect(await readdir(log)).toEqual([
      '00000000000000000001.checkpoint.parquet',
      '00000000000000000001.json',
    ]);
    expect(await codes(world.deps)).toEqual([]);
  });

  test('a restored lake stays as it was in that version until the next load', async () => {
    const world = await built(segment(1, 2));
    world.warehouse.segments = [segment(1, 2), segment(2, 3)];
    await buildLake(world.deps, signal);
    const { version } = await restoreLake(world.deps, 1, signal);
    expect(version).toBe(3);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['2'],
    ]);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 1,
    });
    await buildLake(world.deps, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['5'],
    ]);
    await expect(restoreLake(world.deps, 99, signal)).rejects.toThrow(
      'there is no version 99',
    );
  });

  test.each([
    [
      'deleted',
      'LAKE_MISSING',
      (world: LakeWorld) => rm(join(world.folder, 'lake'), { recursive: true }),
    ],
    [
      'without a table',
      'LAKE_TABLE_MISSING',
      (world: LakeWorld) =>
        rm(join(world.folder, 'lake/parties'), { recursive: true }),
    ],
    [
      'with a file that was changed',
      'LAKE_FILE_CORRUPT',
      async (world: LakeWorld) =>
        writeFile(
          join(world.folder, ENTRIES, (await parquetOf(world))[0] ?? ''),
          'PAR1',
        ),
    ],
    [
      'with a commit that was cut off',
      'LAKE_LOG_BROKEN',
      (world: LakeWorld) =>
        writeFile(
          join(world.folder, ENTRIES, '_delta_log', `${'0'.repeat(20)}.json`),
          '{"add":',
        ),
    ],
    [
      'with a hint to a checkpoint that is not there',
      'LAKE_CHECKPOINT_BROKEN',
      (world: LakeWorld) =>
        writeFile(
          join(world.folder, ENTRIES, '_delta_log', '_last_checkpoint'),
          '{"version":7,"size":1}',
        ),
    ],
  ])('%s is a fault with a name', async (_name, code, damage) => {
    const world = await built(segment(1, 2));
    world.warehouse.parties = [A];
    await buildLake(world.deps, signal);
    await damage(world);
    expect(await codes(world.deps)).toContain(code);
  });

  test('a nightly run reads the new files of the lake and a share of the others', async () => {
    const world = await built(segment(1, 2));
    const nightly = (parts: number): ReturnType<typeof verifyLake> =>
      verifyLake(world.deps, { deep: false, parts }, signal);
    const first = await nightly(4);
    expect(first).toMatchObject({ filesRead: first.files, problems: [] });
    expect(await nightly(4)).toMatchObject({
      filesRead: Math.ceil(first.files / 4),
      problems: [],
    });
    world.warehouse.segments = [segment(1, 2), segment(2, 3)];
    expect(await nightly(first.files)).toMatchObject({
      filesRead: 1,
      segmentsBehind: 1,
    });
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
      found.push(
        ...(await nightly(later.files)).problems.map(({ code }) => code),
      );
    expect(new Set(found)).toEqual(new Set(['LAKE_FILE_CORRUPT']));
    await rm(path);
    expect((await nightly(1_000)).problems.map(({ code }) => code)).toEqual([
      'OBJECT_MISSING',
    ]);
  });

  test.each([
    ['other rows than were loaded', 'LAKE_DIFFERS', [segment(1, 9)]],
    ['nothing of what was loaded', undefined, [segment(7)]],
  ] as const)(
    'a nightly run finds a lake with %s without reading a file',
    async (_name, code, loaded) => {
      const world = await built(segment(1, 2));
      await verifyLake(world.deps, { deep: false }, signal);
      world.warehouse.segments = loaded;
      const found = await verifyLake(
        world.deps,
        { deep: false, parts: 1_000 },
        signal,
      );
      expect(found.problems.map((problem) => problem.code)).toEqual(
        code === undefined ? [] : [code],
      );
      expect(found.segmentsBehind).toBe(code === undefined ? 2 : 0);
    },
  );

  test('verify reports a lake of another mirror', async () => {
    const world = await built(segment(1, 2));
    world.warehouse.mirrorId = '00000000-0000-4000-8000-000000000002';
    await expect(buildLake(world.deps, signal)).rejects.toMatchObject({
      code: 'LAKE_FOREIGN',
    });
  });

  test('verify reports a lake from an older backup, and the next build brings it up to date', async () => {
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
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['4'],
    ]);
  });

  test('a table that another writer raised is refused with LAKE_TABLE_RAISED', async () => {
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
    await expect(buildLake(world.deps, signal)).rejects.toMatchObject({
      code: 'LAKE_TABLE_RAISED',
    });
  });

  test('a log that names a file outside its table is refused', async () => {
    const world = await built(segment(1, 2));
    for (const path of [
      '../../../etc/passwd',
      '%2e%2e/x.parquet',
      'file:///etc/passwd',
      '/etc/passwd',
    ]) {
      const outside = await built(segment(1, 2));
      const add = {
        path,
        partitionValues: {},
        size: 1,
        modificationTime: 0,
        dataChange: true,
      };
      const commit = { operation: 'WRITE', actions: [{ add }] };
      await commitTable(outside.deps.objects, ENTRIES, 1, commit, signal);
      await expect(buildLake(outside.deps, signal)).rejects.toMatchObject({
        code: 'LAKE_PATH_REFUSED',
      });
    }
    expect(await codes(world.deps)).toEqual([]);
  });

  test('describeLake removes a broken checkpoint; the commits hold the same state', async () => {
    const world = await built(segment(1));
    const log = join(world.folder, ENTRIES, '_delta_log');
    await writeFile(
      join(log, '00000000000000000000.checkpoint.parquet'),
      'PAR1 no more PAR1',
    );
    await writeFile(join(log, '_last_checkpoint'), '{"version":0,"size":3}');
    expect(await codes(world.deps)).toEqual([
      'LAKE_CHECKPOINT_BROKEN',
      'LAKE_CHECKPOINT_BROKEN',
    ]);
    const { tables } = await describeLake(world.deps, signal);
    expect(
      tables.find(({ table }) => table === 'ledger_entries'),
    ).toMatchObject({
      mended: 2,
    });
    expect(await codes(world.deps)).toEqual([]);
    expect(await readdir(log)).toEqual(['00000000000000000000.json']);
    await writeFile(
      join(log, '00000000000000000000.checkpoint.parquet'),
      'PAR1 no more PAR1',
    );
    await writeFile(join(log, '_last_checkpoint'), '{"version":0,"size":3}');
    await buildLake(world.deps, signal);
    expect(await readdir(log)).toEqual(['00000000000000000000.json']);
  });

  test('describeLake removes a broken checkpoint above the last commit', async () => {
    const world = await built(segment(1));
    const log = join(world.folder, ENTRIES, '_delta_log');
    await writeFile(
      join(log, '00000000000000000099.checkpoint.parquet'),
      'PAR1 no more PAR1',
    );
    const { tables } = await describeLake(world.deps, signal);
    expect(
      tables.find(({ table }) => table === 'ledger_entries'),
    ).toMatchObject({
      mended: 1,
      version: 0,
    });
    expect(await readdir(log)).toEqual(['00000000000000000000.json']);
  });
});

test('a build keeps a list of the lake that the warehouse has lost, until the warehouse has read it whole', async () => {
  const world = await lakeWorld();
  world.warehouse.parties = [A, B];
  await buildLake(world.deps, signal);
  world.warehouse.parties = [A];
  world.warehouse.areListsProven = false;
  await buildLake(world.deps, signal);
  expect(await world.rows('select count(*) from parties')).toEqual([['2']]);

  world.warehouse.areListsProven = true;
  await buildLake(world.deps, signal);
  expect(await world.rows('select count(*) from parties')).toEqual([['1']]);
});
