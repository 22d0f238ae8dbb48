import { randomUUID } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { describe, expect, test } from 'vitest';
import { createLog } from '../../../src/logging/log.ts';
import {
  mergeAll,
  type MergeReport,
} from '../../../src/exports/merging/merge-all.ts';
import { collectGarbage } from '../../../src/exports/publishing/garbage-collection.ts';
import type { PublishStep } from '../../../src/exports/export-context.ts';
import { ExportArchiveStore } from '../../../src/exports/store/export-archive.ts';
import { RowDigest } from '../../../src/ledger/digest.ts';
import { manifestKey } from '../../../src/ledger/object-keys.ts';
import { loadParty } from '../../../src/warehouse/load-all.ts';
import { LoadStore } from '../../../src/warehouse/store/load-store.ts';
import {
  openWarehouse,
  type Warehouse,
} from '../../../src/postgres/database.ts';
import { rebuildIfEmpty } from '../../../src/warehouse/store/rebuild.ts';
import { freshDatabase, openFreshDatabase } from '../../support/database.ts';
import { Child } from '../../support/process.ts';
import { signal, World } from '../export-world.ts';
import { entries, PARTY, pieces, row12, type Spoil } from '../ledger-double.ts';
import {
  currentSegments,
  publishedSegments,
} from '../../support/mirror-state.ts';
import { emptyLedgers, emptyRuns } from '../../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const NIGHTS = 12;
const log = createLog('silent');

interface Scene extends AsyncDisposable {
  readonly world: World;
  readonly warehouse: Warehouse;
  merge(nightBytesMax?: bigint): Promise<MergeReport>;
  load(): Promise<void>;
  night(index: number): Promise<void>;
}

function instant(night: number): string {
  return new Date(Date.UTC(2023, 4, 25 + night, 2)).toISOString();
}

/** Nights of late May and early June; the fourth brings nothing. */
async function openScene(
  spoils: World['source']['spoils'] = [],
): Promise<Scene> {
  const world = await World.open(database);
  world.source.spoils.push(...spoils);
  await emptyRuns(database.pool);
  await emptyLedgers(database.pool);
  const warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const repository = new LoadStore(warehouse);
  const scene: Scene = {
    world,
    warehouse,
    merge: (nightBytesMax) =>
      mergeAll(
        {
          ...world.deps(),
          archive: new ExportArchiveStore(warehouse.db),
          runId: randomUUID(),
          log,
          nightBytesMax,
        },
        signal,
      ),
    load: async () => {
      expect(
        await loadParty(PARTY, { repository, objects: world.objects }, signal),
      ).toMatchObject({
        quarantined: [],
        heldBack: 0,
      });
    },
    night: async (index) => {
      const first = new Date(Date.UTC(2023, 4, 24 + index, 20)).toISOString();
      if (index !== 4) world.source.entries.push(...entries(first, 20, 600));
      expect(await world.export(instant(index))).toMatchObject({
        verdict: 'complete',
      });
    },
    [Symbol.asyncDispose]: async () => {
      await warehouse[Symbol.asyncDispose]();
      await world[Symbol.asyncDispose]();
    },
  };
  for (let night = 1; night <= NIGHTS; night += 1) await scene.night(night);
  return scene;
}

/** Everything of the table but by which object a row came. */
async function table(): Promise<unknown[]> {
  const { rows } = await database.pool.query<{ row: unknown }>(
    `select to_jsonb(e) - 'segment_id' as row from mirror.ledger_entries e order by 1`,
  );
  return rows.map(({ row }) => row);
}

/** When each published range was last requested from the source, the oldest first. */
async function oldestChecks(pool: Pool): Promise<readonly string[]> {
  const { rows } = await pool.query<{ at: string }>(
    `select checked_at::text as at from mirror.coverage
     where segment_id is not null order by from_time`,
  );
  return rows.map(({ at }) => at);
}

/** Of all current segments: additive, so the same however they are cut. */
async function sumOfDigests(): Promise<string> {
  const sum = new RowDigest();
  const { rows } = await database.pool.query<{ digest: string; rows: string }>(
    `select digest, rows from mirror.segments where status = 'current'`,
  );
  for (const { digest, rows: count } of rows)
    sum.merge(RowDigest.fromHex(digest, Number(count)));
  return `${sum.rows} ${sum.hex()}`;
}

async function startRun(): Promise<string> {
  const runId = randomUUID();
  await database.pool.query(
    `insert into mirror.runs (run_id, kind, subject) values ($1, 'nightly', 'now')`,
    [runId],
  );
  return runId;
}

/** Merges in a process of its own, which kills itself at that step. */
async function killMerging(
  world: World,
  runId: string,
  step: PublishStep,
): Promise<void> {
  const worker = join(import.meta.dirname, 'killed-worker.ts');
  await using child = new Child(process.execPath, [
    worker,
    database.url,
    world.folder,
    runId,
    step,
  ]);
  const exit = await child.end();
  if (exit.signal !== 'SIGKILL')
    throw new Error(`the worker was not killed: ${child.stderr}`);
}

describe('closed segments of a month that is over', () => {
  test('become one, and neither the rows, nor the table, nor what is covered changes', async () => {
    await using scene = await openScene();
    const { world } = scene;
    await scene.load();
    const rows = await world.rows();
    const before = await table();
    expect(rows).toEqual(world.source.entries.map(row12).toSorted());
    const report = await scene.merge();
    expect(report).toMatchObject({ ledgers: 1, into: 1, left: 0, failed: 0 });
    expect(await world.rows()).toEqual(rows);
    // Until they are loaded, the rows of the old ones are what the table has.
    expect(await table()).toEqual(before);
    await scene.load();
    expect(await table()).toEqual(before);
    const closed = (await world.coverage()).filter((line) =>
      line.includes(' closed '),
    );
    expect(closed[0]).toMatch(
      /^1970-01-01 00:00:00 2023-05-31 01:58:00 closed/,
    );
    expect(closed).toHaveLength(7);
    expect(await scene.merge()).toMatchObject({ ledgers: 0, into: 0 });
    // What comes next goes on from the merged one: it proves its border by the tail that
    // it took over.
    await scene.night(NIGHTS + 1);
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
  });

  test('become one that a rebuilt database takes for as long unchecked as its oldest part', async () => {
    await using scene = await openScene();
    const { world } = scene;
    await database.pool.query(
      `update mirror.coverage set checked_at = '2023-06-01Z'::timestamptz + (to_time - '2023-06-01Z')
       where to_time < '2023-06-01Z' and not open`,
    );
    expect(await scene.merge()).toMatchObject({ into: 1 });
    const merged = await oldestChecks(database.pool);
    expect(merged[0]).toMatch(/^2023-05-/);

    await using empty = await openFreshDatabase({ isMigrated: true });
    await using warehouse = openWarehouse({
      url: empty.url,
      onIdleError: () => undefined,
    });
    const catalog = { db: warehouse.db, objects: world.objects };
    expect(await rebuildIfEmpty(catalog, signal)).toMatchObject({
      problemCount: 0,
    });
    expect((await oldestChecks(empty.pool))[0]).toBe(merged[0]);
  });

  test('become one where some end their lines in carriage returns', async () => {
    const carriageReturns: Spoil = (csv) =>
      pieces(Buffer.from(csv.toString().replaceAll('\n', '\r\n')), 700);
    const answers = Array.from({ length: NIGHTS * 2 }, (_, index) =>
      index % 3 === 0 ? undefined : carriageReturns,
    );
    await using scene = await openScene(answers);
    await scene.load();
    const before = await table();
    expect(before).toHaveLength(scene.world.source.entries.length);
    expect(await scene.merge()).toMatchObject({
      ledgers: 1,
      into: 1,
      failed: 0,
    });
    await scene.load();
    expect(await table()).toEqual(before);
  });

  test.each<[PublishStep, string, boolean]>([
    ['spooled', 'with its spool', true],
    ['intended', 'with its spool', true],
    ['intended', 'without it, as on another machine', false],
    ['object', 'with its spool', true],
    ['object', 'without it', false],
    ['manifest', 'with its spool', true],
    ['committed', 'with its spool', true],
  ])(
    'are all there at every moment where the nightly run is killed with -9 at %s, and merged by the next one %s',
    async (step, _, isSpoolKept) => {
      await using scene = await openScene();
      const { world, warehouse } = scene;
      await scene.load();
      const rows = await world.rows();
      const before = await table();
      const sum = await sumOfDigests();
      const runId = await startRun();
      await killMerging(world, runId, step);
      expect(await world.rows()).toEqual(rows);
      expect(await sumOfDigests()).toBe(sum);
      if (!isSpoolKept)
        await rm(join(world.folder, 'objects', '.spool'), {
          recursive: true,
          force: true,
        });
      await world.expireLeases();
      await scene.merge();
      expect(await world.rows()).toEqual(rows);
      expect(await sumOfDigests()).toBe(sum);
      const [first, ...later] = (await world.coverage()).filter((line) =>
        line.includes(' closed '),
      );
      expect([first?.slice(0, 39), later.length]).toEqual([
        '1970-01-01 00:00:00 2023-05-31 01:58:00',
        6,
      ]);
      await scene.load();
      expect(await table()).toEqual(before);
      expect(await scene.merge()).toMatchObject({ ledgers: 0 });
      // Of all that the two nights wrote, only what is published stays.
      const archive = new ExportArchiveStore(warehouse.db);
      await collectGarbage(
        { objects: world.objects, archive, log, graceMs: -1000 },
        signal,
      );
      const owned = (await currentSegments(world.pool)).map(
        ({ objectKey }) => objectKey,
      );
      expect(await world.keys()).toEqual(
        owned.flatMap((key) => [key, manifestKey(key)]).toSorted(),
      );
      expect(await world.spooled()).toEqual([]);
      await scene.night(NIGHTS + 1);
      expect(await world.rows()).toEqual(
        world.source.entries.map(row12).toSorted(),
      );
    },
  );

  test('leave their objects to the clean-up, which removes those and no others', async () => {
    await using scene = await openScene();
    const { world, warehouse } = scene;
    const { segments } = await scene.merge();
    await scene.load();
    const deps = {
      objects: world.objects,
      archive: new ExportArchiveStore(warehouse.db),
      log,
    };
    const known = await world.objectKeys();
    expect(await collectGarbage(deps, signal)).toMatchObject({
      removedObjects: 0,
    });
    const tidied = await collectGarbage({ ...deps, graceMs: -1000 }, signal);
    expect(tidied.removedObjects).toBeGreaterThanOrEqual(segments);
    expect((await world.objectKeys()).length).toBe(
      known.length - tidied.removedObjects,
    );
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
    // Their rows of the manifest table are kept as long once more, and then go as well.
    const superseded = async (): Promise<number> =>
      (await publishedSegments(world.pool)).length -
      (await currentSegments(world.pool)).length;
    expect(await superseded()).toBe(tidied.removedObjects);
    expect(
      await collectGarbage({ ...deps, graceMs: -1000 }, signal),
    ).toMatchObject({
      removedObjects: 0,
    });
    expect(await superseded()).toBe(0);
  });

  test('stay as they are where an object of theirs is damaged, and its range is asked for again', async () => {
    await using scene = await openScene();
    const { world } = scene;
    const rows = await world.rows();
    const closed = (await currentSegments(world.pool)).find(
      ({ open }) => !open,
    );
    await writeFile(
      join(world.folder, 'objects', closed?.objectKey ?? ''),
      'damaged',
    );
    const before = await publishedSegments(world.pool);
    expect(await scene.merge()).toMatchObject({ into: 0, failed: 0 });
    expect(await publishedSegments(world.pool)).toEqual(
      before.map((one) => ({
        ...one,
        isQuarantined: one.objectKey === closed?.objectKey,
      })),
    );
    await scene.night(NIGHTS + 1);
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
    expect(rows.length).toBeLessThan((await world.rows()).length);
  });

  test('are not held against their segments if the store has lost all of them at once', async () => {
    await using scene = await openScene();
    const { world } = scene;
    for (const partyId of ['bb', 'cc'].map((pair) => pair.repeat(32))) {
      for (let night = 1; night <= NIGHTS; night += 1) {
        const first = new Date(Date.UTC(2023, 4, 24 + night, 20)).toISOString();
        const own = entries(first, 5, 600).map((entry) => ({
          ...entry,
          from: partyId,
        }));
        world.source.entries.push(...own);
        await world.export(instant(night), { partyId });
      }
    }
    const before = await publishedSegments(world.pool);
    for (const { objectKey } of before)
      await rm(join(world.folder, 'objects', objectKey));
    expect(await scene.merge()).toMatchObject({ into: 0, failed: 0 });
    expect(await publishedSegments(world.pool)).toEqual(before);
  });

  test('wait for another nightly run where this one has written enough or another process works on the ledger', async () => {
    await using scene = await openScene();
    const { world } = scene;
    expect(await scene.merge(0n)).toMatchObject({ into: 0, left: 1 });
    const lease = await world.repository.acquire({ partyId: PARTY });
    expect(await scene.merge()).toMatchObject({ into: 0, left: 1 });
    if (lease !== undefined) await world.repository.release(lease);
    expect(await scene.merge()).toMatchObject({ into: 1, left: 0 });
  });
});
