import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { buildLake } from '../../../src/lake/build/build.ts';
import { SMALL_FILES_MAX } from '../../../src/lake/build/build-entries.ts';
import { describeLake } from '../../../src/lake/overview.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { commitTable } from '../commit-table.ts';
import { entry } from '../entries-double.ts';
import { lakeWorld } from '../lake-world.ts';
import {
  A,
  B,
  built,
  codes,
  ENTRIES,
  logged,
  parquetOf,
  segment,
  signal,
} from './built.ts';

describe('a build of the lake', () => {
  test('a build of the lake appends new segments and leaves every file that is there', async () => {
    const world = await built(segment(1, 50));
    const before = await parquetOf(world);
    world.warehouse.segments = [segment(1, 50), segment(2, 3)];

    await buildLake(world.deps, signal);

    const after = await parquetOf(world);
    expect(after).toEqual(expect.arrayContaining([...before]));
    expect(after).toHaveLength(before.length + 1);
    expect((await logged(world, 1)).filter(({ remove }) => remove)).toEqual([]);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['53'],
    ]);
  });

  test.each([5, 15])(
    'a build of the lake writes a row of %s million bytes beside others',
    async (millions) => {
      const long = entry({
        party_id: A,
        account_from_party_id: A,
        account_from_market_id: 'm'.repeat(millions * 1e6),
      });
      const world = await built({
        segmentId: 1n,
        rows: [...segment(1, 300).rows, long],
      });
      expect(
        await world.rows(
          'select count(*), max(length(account_from_market_id)) from ledger_entries',
        ),
      ).toEqual([['301', String(millions * 1e6)]]);
    },
  );

  test('a build of the lake replaces open segments without writing a closed row again', async () => {
    const world = await built(segment(1, 20), segment(2, 5, true));
    world.warehouse.segments = [
      segment(1, 20),
      segment(3, 2),
      segment(4, 1, true),
    ];

    await buildLake(world.deps, signal);

    const actions = await logged(world, 1);
    const added = actions.flatMap(({ add }) =>
      add ? [JSON.parse(add.stats) as { numRecords: number }] : [],
    );
    expect(
      added.map(({ numRecords }) => numRecords).toSorted((a, b) => a - b),
    ).toEqual([1, 2]);
    expect(actions.filter(({ remove }) => remove)).toHaveLength(1);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  test('a build of the lake removes a segment that is gone from the file that holds it', async () => {
    const world = await built(segment(1, 4), segment(2, 5), segment(3, 6));
    world.warehouse.segments = [segment(1, 4), segment(3, 6)];
    await buildLake(world.deps, signal);
    expect(
      await world.rows(
        'select segment_id, count(*) from ledger_entries group by 1 order by 1',
      ),
    ).toEqual([
      ['1', '4'],
      ['3', '6'],
    ]);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  test('a build of the lake compacts many small files without changing rows', async () => {
    const world = await built(segment(1));
    for (let night = 2; night <= SMALL_FILES_MAX + 1; night += 1) {
      world.warehouse.segments = Array.from({ length: night }, (_, index) =>
        segment(index + 1),
      );
      await buildLake(world.deps, signal);
    }
    const { tables } = await describeLake(world.deps, signal);
    expect(tables).toContainEqual(
      expect.objectContaining({
        table: 'ledger_entries',
        files: 1,
        rows: BigInt(SMALL_FILES_MAX + 1),
      }),
    );
    const compaction = await logged(world, SMALL_FILES_MAX + 1);
    const changes = compaction
      .flatMap(({ add, remove }) => [add, remove])
      .filter((change) => change);
    expect(changes).toHaveLength(SMALL_FILES_MAX + 2);
    expect(changes.every((change) => change?.dataChange === false)).toBe(true);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  test('a commit of a build has its application and number, and no statistics of amounts', async () => {
    const world = await built(segment(1));
    const actions = await logged(world, 0);
    expect(actions.flatMap(({ txn }) => txn ?? [])).toMatchObject([
      { appId: `ledger-mirror:${world.warehouse.mirrorId}`, version: 1 },
    ]);
    const [metaData] = actions.flatMap((action) => action.metaData ?? []);
    const withStatistics =
      metaData?.configuration['delta.dataSkippingStatsColumns']?.split(',');
    expect(withStatistics).toContain('vega_time');
    expect(withStatistics).not.toContain('quantity');
    expect(
      actions.flatMap(({ add }) => add?.stats ?? []).join(''),
    ).not.toContain('"quantity"');
  });

  test('a build of the lake writes a checkpoint every thirty commits, equal to the commits', async () => {
    const world = await built(segment(1));
    const { objects } = world.deps;
    for (let version = 1; version < 29; version += 1) {
      const txn = { appId: 'another', version };
      await commitTable(
        objects,
        ENTRIES,
        version,
        { operation: 'WRITE', actions: [{ txn }] },
        signal,
      );
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
    expect(await world.rows('select segment_id from ledger_entries')).toEqual([
      ['2'],
    ]);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  test('a build of the lake decides which rows count by the coverage of other parties', async () => {
    const world = await lakeWorld();
    const received = entry({
      party_id: B,
      account_from_party_id: A,
      account_to_party_id: B,
    });
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
      world.warehouse.covered =
        range === undefined
          ? []
          : [[A, '', '2023-04-01 00:00:00', range, true]];
      await buildLake(world.deps, signal);
      expect(await flows()).toEqual([[counted, counted]]);
    }
    expect(await parquetOf(world)).toHaveLength(1);
  });

  test('a build of the lake stops if another writer has committed meanwhile, and the next build continues from there', async () => {
    const world = await built(segment(1));
    world.warehouse.segments = [segment(1), segment(2)];
    const { objects } = world.deps;
    const foreign = {
      operation: 'WRITE',
      actions: [{ txn: { appId: 'another', version: 1 } }],
    };
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
    await expect(
      buildLake({ ...world.deps, objects: raced }, signal),
    ).rejects.toMatchObject({
      code: 'LAKE_SECOND_WRITER',
    });
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['1'],
    ]);
    await buildLake(world.deps, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['2'],
    ]);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  test('a build of the lake rewrites all tables for a database that does not know them', async () => {
    const world = await built(segment(1, 3));
    world.warehouse.forget();
    world.warehouse.segments = [segment(1, 2)];
    await buildLake(world.deps, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['2'],
    ]);
    expect(await logged(world, 1)).toHaveLength(4);
    expect(await verifyLake(world.deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
  });

  test('a build of the lake adds columns that an older table lacks', async () => {
    const world = await built(segment(1));
    const path = join(
      world.folder,
      ENTRIES,
      '_delta_log',
      `${'0'.repeat(20)}.json`,
    );
    const text = await readFile(path, 'utf8');
    // As an earlier version would have made it: without `side`, which its file then lacks
    // as well.
    const side = /,\{\\"name\\":\\"side\\".*?\}\}(?=,\{\\"name\\":\\"month)/;
    expect(text).toMatch(side);
    await writeFile(path, text.replace(side, ''));
    world.warehouse.segments = [segment(1), segment(2)];
    await buildLake(world.deps, signal);
    const [metaData] = (await logged(world, 1)).flatMap(
      (action) => action.metaData ?? [],
    );
    expect(metaData?.schemaString).toContain('"name":"side"');
    expect(await codes(world.deps, true)).toEqual([]);
  });
});
