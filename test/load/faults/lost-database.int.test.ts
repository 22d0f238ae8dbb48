/** A lost database, rebuilt from the store: the next night asks for what it would have asked anyway. */
import type { Pool } from 'pg';
import { randomUUID } from 'node:crypto';
import { cp, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { exportParty } from '../../../src/export/export-party.ts';
import { createLog } from '../../../src/core/log.ts';
import { tidyStore } from '../../../src/export/publish/janitor.ts';
import { recordCoverage } from '../../../src/export/store/record-coverage.ts';
import { readRecordKey } from '../../../src/ledger/objects/coverage-record.ts';
import { catchUpWithStore, rebuildIfEmpty, type RebuildResult } from '../../../src/load/rebuild.ts';
import { FileStore } from '../../../src/objects/file-store.ts';
import type { ReleaseName } from '../../../src/sandbox/release-names.ts';
import { ExportArchiveStore } from '../../../src/export/store/export-archive.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { RebuildStore } from '../../../src/load/store/rebuild-store.ts';
import { signal, World } from '../../export/export-world.ts';
import { expectTruth, type Night, openNights } from '../../export/sandbox-nightly.ts';
import { testSource } from '../../source/test-source.ts';
import { type FreshDatabase, freshDatabase, openFreshDatabase } from '../../support/database.ts';
import { coveredRanges, currentSegments, publicationSeq } from '../../support/mirror-state.ts';
import { countPublication, emptyLedgers, setPublicationSeq } from '../../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });

/** What the source was asked, party by party. */
interface Scene extends Night {
  /** Every party's export, and the record behind it. @returns what was asked meanwhile */
  night(): Promise<readonly string[]>;
  record(objects?: FileStore): Promise<string | undefined>;
  /** A second mirror: an empty database, and a copy of the store. */
  rebuilt(): Promise<{ world: World; result: RebuildResult | undefined; night: Scene['night'] }>;
}

async function openScene(release: ReleaseName): Promise<Scene> {
  await setPublicationSeq(database.pool, 0n);
  const night = await openNights(database, { release, parties: 6, whaleEntries: 800 });
  const { sandbox, world } = night;
  const asked: string[] = [];
  sandbox.faults.add(({ route, queryText }) => {
    if (route === 'export') asked.push(queryText);
    return undefined;
  });
  const { ledger } = testSource(new URL(sandbox.url));
  async function nightOf(of: World): Promise<readonly string[]> {
    asked.length = 0;
    const seenTime = sandbox.truth.head().time;
    const closedTo = seenTime - 120_000_000n;
    for (const { id } of sandbox.truth.parties()) {
      const request = { partyId: id, runId: randomUUID(), seenTime, closedTo };
      const outcome = await exportParty(
        request,
        of.deps({ source: ledger, segmentBytesMax: 2 ** 20 }),
        signal,
      );
      expect(outcome.verdict).toBe('complete');
    }
    return [...asked];
  }
  const record = (objects = world.objects): Promise<string | undefined> => recordIn(database, objects);
  return {
    ...night,
    record,
    night: async () => {
      const questions = await nightOf(world);
      await record();
      return questions;
    },
    rebuilt: async () => {
      const empty = await openFreshDatabase({ isMigrated: true });
      const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-lost-'));
      await cp(join(world.folder, 'objects'), join(folder, 'objects'), { recursive: true });
      const other = new World(empty.url, empty.pool, folder);
      onTestFinished(async () => {
        await other[Symbol.asyncDispose]();
        await empty[Symbol.asyncDispose]();
        await rm(folder, { recursive: true, force: true });
      });
      await using warehouse = openWarehouse({ url: empty.url, onIdleError: () => undefined });
      const repository = new RebuildStore(warehouse.db);
      const result = await rebuildIfEmpty({ repository, objects: other.objects }, signal);
      return { world: other, result, night: () => nightOf(other) };
    },
  };
}

async function recordIn({ url }: FreshDatabase, objects: FileStore): Promise<string | undefined> {
  await using warehouse = openWarehouse({ url, onIdleError: () => undefined });
  return recordCoverage({ pool: warehouse.pool, objects }, signal);
}

/** All that says what is left to ask, and what is believed of the answers. The source's order is random. */
async function coverageOf({ pool }: World): Promise<unknown[]> {
  const { rows } = await pool.query(
    `select c.party_id, c.asset_id, c.from_time, c.to_time, c.open, c.sides, c.tail, s.rows, s.digest, s.open as "isOpen",
       s.status
     from mirror.coverage c left join mirror.segments s using (segment_id) order by 1, 2, 3`,
  );
  return rows;
}

async function recordKeys({ objects }: World): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of objects.list('coverage/', signal)) keys.push(key);
  return keys;
}

describe.each(['0.71.4', '0.73'] as const)('release %s', (release) => {
  test('the nightly run after a rebuild asks the same requests and ends with the same coverage', async () => {
    const scene = await openScene(release);
    // The third night finds the present as it was: what was open is closed as it stands.
    for (const passed of [0, 3_600_000, 600_000, 86_400_000]) {
      scene.sandbox.advance(passed);
      await scene.night();
    }
    const empties = (await coveredRanges(scene.world.pool)).filter(({ isEmpty }) => isEmpty);
    expect(empties.length).toBeGreaterThan(0);
    const lost = await scene.rebuilt();
    expect(lost.result).toMatchObject({ problemCount: 0, rangesWithoutEntries: empties.length });
    expect(await coverageOf(lost.world)).toEqual(await coverageOf(scene.world));

    scene.sandbox.advance(7_200_000);
    const questions = await scene.night();
    expect(questions.length).toBe([...scene.sandbox.truth.parties()].length);
    expect(await lost.night()).toEqual(questions);
    expect(await coverageOf(lost.world)).toEqual(await coverageOf(scene.world));
    await expectTruth({ ...scene, world: lost.world });
  });
});

/** @returns what puts it back as it is now */
async function backUp({ pool }: World): Promise<() => Promise<void>> {
  const tables = ['exports', 'segments', 'coverage'];
  await pool.query('drop schema if exists backup cascade; create schema backup');
  for (const name of tables) await pool.query(`create table backup.${name} as table mirror.${name}`);
  const seq = await publicationSeq(pool);
  return async () => {
    await emptyLedgers(pool);
    for (const name of tables)
      await pool.query(`insert into mirror.${name} overriding system value table backup.${name}`);
    await setPublicationSeq(pool, seq);
  };
}

test('a database that went back to a backup takes over what was published since, before anything is removed', async () => {
  const scene = await openScene('0.73');
  const { world, sandbox } = scene;
  const goOn = async (): Promise<void> => {
    sandbox.advance(86_400_000);
    await scene.night();
  };
  await scene.night();
  await goOn();
  const restore = await backUp(world);
  await goOn();
  await goOn();
  const covered = await coverageOf(world);
  const current = async (): Promise<string[]> => {
    return (await currentSegments(world.pool)).map(({ objectKey }) => objectKey).toSorted();
  };
  const before = await current();
  await restore();
  await using warehouse = openWarehouse({ url: database.url, onIdleError: () => undefined });
  const deps = { repository: new RebuildStore(warehouse.db), objects: world.objects };
  expect(await catchUpWithStore(deps, signal)).toMatchObject({ problemCount: 0 });
  expect(await coverageOf(world)).toEqual(covered);
  expect(await current()).toEqual(before);
  const archive = new ExportArchiveStore(warehouse.db);
  await tidyStore({ objects: world.objects, archive, log: createLog('silent'), graceMs: -1000 }, signal);
  expect(await world.keys()).toEqual(expect.arrayContaining(before));
  expect(await catchUpWithStore(deps, signal)).toBeUndefined();
  sandbox.advance(7_200_000);
  expect(await scene.night()).toHaveLength([...sandbox.truth.parties()].length);
  await expectTruth(scene);
});

test('segments published since the last coverage record are known by their manifests', async () => {
  const scene = await openScene('0.71.4');
  await scene.night();
  const records = join(scene.world.folder, 'objects', 'coverage');
  const before = join(scene.world.folder, 'before');
  await cp(records, before, { recursive: true });
  scene.sandbox.advance(86_400_000);
  await scene.night();
  await rm(records, { recursive: true });
  await rename(before, records);
  const lost = await scene.rebuilt();
  const closedKeys = async (pool: Pool): Promise<string[]> =>
    (await currentSegments(pool)).filter(({ open }) => !open).map(({ objectKey }) => objectKey);
  const known = await closedKeys(scene.world.pool);
  const again = await closedKeys(lost.world.pool);
  expect(known).toEqual(expect.arrayContaining(again));
  await lost.night();
  await expectTruth({ ...scene, world: lost.world });
});

test('a coverage record names every party where most have changed, so that the next one is small', async () => {
  const scene = await openScene('0.71.4');
  await scene.night();
  scene.sandbox.advance(86_400_000);
  await scene.night();
  const isFull = async (): Promise<unknown[]> =>
    (await recordKeys(scene.world)).map((key) => readRecordKey(key)?.isFull);
  expect(await isFull()).toEqual([true]);
  await countPublication(scene.world.pool, 0);
  await scene.record();
  expect(await isFull()).toEqual([true, false]);
});

test('coverage records stay few however often one is written, and say the same', async () => {
  const scene = await openScene('0.71.4');
  await scene.night();
  expect(await scene.record()).toBeUndefined();
  for (let round = 0; round < 40; round += 1) {
    // As a commit would.
    await countPublication(scene.world.pool, round % 3);
    expect(await scene.record()).toBeDefined();
  }
  const kept = await recordKeys(scene.world);
  expect(kept.length).toBeLessThan(34);
  expect(kept.filter((key) => readRecordKey(key)?.isFull === true).length).toBe(1);
  expect(await coverageOf((await scene.rebuilt()).world)).toEqual(await coverageOf(scene.world));
  expect(await scene.world.spooled()).toEqual([]);
});

test.each(['before', 'after'] as const)(
  'a process that ends %s its record is there leaves it to the next',
  async (when) => {
    const scene = await openScene('0.71.4');
    class Dying extends FileStore {
      override async publishFile(...given: Parameters<FileStore['publishFile']>): Promise<void> {
        if (when === 'after') await super.publishFile(...given);
        throw new Error('ended');
      }
    }
    await expect(scene.night()).resolves.toBeDefined();
    scene.sandbox.advance(86_400_000);
    const [{ id } = { id: '' }] = scene.sandbox.truth.parties();
    await scene.run(id);
    await expect(scene.record(new Dying(join(scene.world.folder, 'objects')))).rejects.toThrow('ended');
    expect(await scene.record()).toBeDefined();
    expect(await scene.record()).toBeUndefined();
    expect(await coverageOf((await scene.rebuilt()).world)).toEqual(await coverageOf(scene.world));
  },
);

test('a record rewrites each ledger that changed once, and leaves to the next what changes meanwhile', async () => {
  const scene = await openScene('0.71.4');
  await scene.night();
  const { pool, folder } = scene.world;
  const { rows } = await pool.query<{ id: number }>(
    'select export_id::int as id from mirror.exports order by 1',
  );
  const [first = 0, second = 0] = rows.map(({ id }) => id);
  // As a commit would.
  const change = (...ids: number[]): Promise<unknown> =>
    pool.query('update mirror.exports set coverage_seq = coverage_seq + 1 where export_id = any ($1)', [ids]);
  class Busy extends FileStore {
    override async publishFile(...given: Parameters<FileStore['publishFile']>): Promise<void> {
      await change(second);
      await super.publishFile(...given);
    }
  }
  await pool.query(`
    create table rewritten (id int);
    create function note_rewritten() returns trigger language plpgsql as
      $$ begin insert into rewritten values (new.export_id); return null; end $$;
    create trigger rewritten after update on mirror.exports for each row execute function note_rewritten()`);
  onTestFinished(async () => {
    await pool.query('drop function note_rewritten cascade; drop table rewritten');
  });
  await change(first, second);
  expect(await scene.record(new Busy(join(folder, 'objects')))).toBeDefined();
  const rewritten = await pool.query<{ id: number }>('select id from rewritten order by 1');
  expect(rewritten.rows.map(({ id }) => id)).toEqual([first, first, second, second, second]);
  expect(await scene.record()).toBeDefined();
  expect(await scene.record()).toBeUndefined();
});

test.each([
  ['cut', (bytes: Buffer) => bytes.subarray(0, bytes.length - 20)],
  [
    'changed',
    (bytes: Buffer) => zstdCompressSync(zstdDecompressSync(bytes).toString().replace('"from"', '"both"')),
  ],
  ['no record', () => Buffer.from('{}')],
])('a record that is %s is left out, and what it alone knows is asked again', async (_, damage) => {
  const scene = await openScene('0.71.4');
  await scene.night();
  scene.sandbox.advance(600_000);
  await scene.night();
  const empties = (await coveredRanges(scene.world.pool)).filter(({ isEmpty }) => isEmpty);
  expect(empties.length).toBeGreaterThan(0);
  const keys = await recordKeys(scene.world);
  for (const key of keys) {
    const path = join(scene.world.folder, 'objects', key);
    await writeFile(path, damage(await readFile(path)));
  }
  const lost = await scene.rebuilt();
  const problems = keys.map((key) => ({ key }));
  expect(lost.result).toMatchObject({ problemCount: keys.length, problems, rangesWithoutEntries: 0 });
  await lost.night();
  await expectTruth({ ...scene, world: lost.world });
});
