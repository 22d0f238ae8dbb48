/** Commits in a store that lets two writers put one: the database decides. */
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { buildLake, type LakeDeps } from '../../../src/lake/build/build.ts';
import { restoreLake } from '../../../src/lake/overview.ts';
import { verifyLake } from '../../../src/lake/verify/verify-lake.ts';
import { entry, type SegmentRows } from '../entries-double.ts';
import { lakeWorld, type LakeWorld } from '../lake-world.ts';

const signal = new AbortController().signal;
const ENTRIES_LOG = 'lake/ledger_entries/_delta_log/';

type Write = (key: string, content: Buffer) => Promise<'written'>;

function segment(segmentId: number): SegmentRows {
  return {
    segmentId: BigInt(segmentId),
    rows: [entry({ party_id: 'aa'.repeat(32) })],
  };
}

/** Writes over what lies there, and says that it wrote. */
function careless(
  { deps, folder }: LakeWorld,
  before: (key: string) => Promise<void> | void,
): LakeDeps {
  const putIfAbsent: Write = async (key, content) => {
    await before(key);
    await mkdir(dirname(join(folder, key)), { recursive: true });
    await writeFile(join(folder, key), content);
    return 'written';
  };
  const objects = new Proxy(deps.objects, {
    get: (store, name) => {
      if (name === 'capabilities')
        return async () => ({
          put: 'ignored',
          multipart: 'ignored',
          hasOneWinner: false,
        });
      if (name === 'putIfAbsent') return putIfAbsent;
      const own: unknown = Reflect.get(store, name);
      return typeof own === 'function' ? (own.bind(store) as unknown) : own;
    },
  });
  return { ...deps, objects };
}

async function expectOne(
  world: LakeWorld,
  deps: LakeDeps,
  segments: number,
): Promise<void> {
  expect(
    await world.rows('select segment_id from ledger_entries order by 1'),
  ).toEqual(
    Array.from({ length: segments }, (_, index) => [String(index + 1)]),
  );
  expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
    problems: [],
    segmentsBehind: 0,
  });
}

describe('a store that lets two writers put one commit', () => {
  test('on a store that lets two writers put one commit, the database decides commits and each build reports it', async () => {
    const world = await lakeWorld();
    const deps = careless(world, () => undefined);
    for (const count of [1, 2]) {
      world.warehouse.segments = [1, 2].slice(0, count).map(segment);
      expect(await buildLake(deps, signal)).toMatchObject({
        commitsDecidedBy: 'database',
      });
    }
    await expectOne(world, deps, 2);
    await restoreLake(deps, 1, signal);
    expect(await world.rows('select count(*) from ledger_entries')).toEqual([
      ['1'],
    ]);
  });

  test('the lake keeps every row of a builder that was frozen before its commit while another built', async () => {
    const world = await lakeWorld();
    const isReached = Promise.withResolvers<void>();
    const isFree = Promise.withResolvers<void>();
    const frozen = careless(world, async (key) => {
      if (!key.startsWith(ENTRIES_LOG)) return;
      isReached.resolve();
      await isFree.promise;
    });
    const deps = careless(world, () => undefined);
    world.warehouse.segments = [segment(1)];
    const first = buildLake(frozen, signal).then(
      () => 'built',
      (error: unknown) => (error as { code: string }).code,
    );
    await isReached.promise;
    world.warehouse.segments = [segment(1), segment(2)];
    await buildLake(deps, signal);
    isFree.resolve();
    // What it had decided is what lies there; the next version is not its own.
    expect(await first).toBe('LAKE_SECOND_WRITER');
    await expectOne(world, deps, 2);
    await buildLake(deps, signal);
    await expectOne(world, deps, 2);
  });

  test('the database refuses the second of two builders that both believe to be alone', async () => {
    const world = await lakeWorld();
    const deps = careless(world, () => undefined);
    world.warehouse.segments = [segment(1), segment(2)];
    const ends = await Promise.allSettled([
      buildLake(deps, signal),
      buildLake(deps, signal),
    ]);
    const codes = ends.flatMap((end) =>
      end.status === 'rejected' ? [(end.reason as { code: string }).code] : [],
    );
    expect(codes).toEqual(['LAKE_SECOND_WRITER']);
    await expectOne(world, deps, 2);
  });

  test('the next build puts the commit that a killed builder had decided, once', async () => {
    const world = await lakeWorld();
    world.warehouse.segments = [segment(1)];
    const killed = careless(world, (key) => {
      if (key.startsWith(ENTRIES_LOG)) throw new Error('killed');
    });
    await expect(buildLake(killed, signal)).rejects.toThrow('killed');
    const deps = careless(world, () => undefined);
    await buildLake(deps, signal);
    await expectOne(world, deps, 1);
    expect(await readdir(join(world.folder, ENTRIES_LOG))).toEqual([
      `${'0'.repeat(20)}.json`,
    ]);
  });
});
