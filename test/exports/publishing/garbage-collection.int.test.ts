import { strict as assert } from 'node:assert';
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { PermanentError } from '../../../src/errors/errors.ts';
import { isManifestKey, manifestKey } from '../../../src/ledger/object-keys.ts';
import type { ObjectStore } from '../../../src/storage/object-store.ts';
import { createLog } from '../../../src/logging/log.ts';
import { collectGarbage } from '../../../src/exports/publishing/garbage-collection.ts';
import { encodeManifest, readManifest } from '../../../src/ledger/manifest.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { ExportArchiveStore } from '../../../src/exports/store/export-archive.ts';
import { freshDatabase } from '../../support/database.ts';
import { signal, World } from '../export-world.ts';
import { entries, row12 } from '../ledger-double.ts';
import {
  emptyCoverage,
  supersedeSegments,
} from '../../support/mirror-arrange.ts';
import { withOverrides } from '../../support/with-overrides.ts';

const database = await freshDatabase({ isMigrated: true });
const NO_GRACE = -1000;

test('superseded objects go when their time is up, current ones never', async () => {
  await using world = await World.open(database);
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const archive = new ExportArchiveStore(warehouse.db);
  const deps = { objects: world.objects, archive, log: createLog('silent') };
  world.source.entries = entries('2023-05-01T10:00:00Z', 100);
  await world.export('2023-05-01T11:00:00Z');
  // Late: the open segment does not come back as it was, and is replaced.
  world.source.entries.push({ time: '2023-05-01 11:10:00.5+00' });
  await world.export('2023-05-01T12:00:00Z');
  expect(await world.objectKeys()).toHaveLength(3);
  expect(await collectGarbage(deps, signal)).toEqual({
    sweptFiles: 0,
    removedObjects: 0,
    keptObjects: 0,
  });
  expect(
    await collectGarbage({ ...deps, graceMs: NO_GRACE }, signal),
  ).toMatchObject({
    removedObjects: 1,
  });
  expect(await world.keys()).toHaveLength(4);
  expect(await world.rows()).toEqual(
    world.source.entries.map(row12).toSorted(),
  );
  expect(
    await collectGarbage({ ...deps, graceMs: NO_GRACE }, signal),
  ).toMatchObject({
    removedObjects: 0,
  });
});

test('a damaged manifest keeps its object, and a file of somebody else is left alone', async () => {
  await using world = await World.open(database);
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const deps = {
    objects: world.objects,
    archive: new ExportArchiveStore(warehouse.db),
    log: createLog('silent'),
    graceMs: NO_GRACE,
  };
  const [damaged, unfinished] = ['a', 'b'].map(
    (digit) =>
      `ledger/party=aa/asset=all/20230501T000000Z_20230502T000000Z.${digit.repeat(12)}.csv`,
  );
  const foreign = 'ledger/README.txt';
  await world.objects.publishBytes(`${damaged}`, Buffer.from('x'), signal);
  await world.objects.publishBytes(
    `${damaged}.manifest.json`,
    Buffer.from('{'),
    signal,
  );
  await world.objects.publishBytes(`${unfinished}`, Buffer.from('y'), signal);
  await world.objects.publishBytes(
    foreign,
    Buffer.from('of somebody else'),
    signal,
  );
  expect(await collectGarbage(deps, signal)).toMatchObject({
    removedObjects: 1,
    keptObjects: 1,
  });
  expect(new Set(await world.objectKeys())).toEqual(
    new Set([foreign, damaged]),
  );
});

test('an object of another mirror is kept, whatever number its manifest has, and nothing else waits for it', async () => {
  await using world = await World.open(database);
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const archive = new ExportArchiveStore(warehouse.db);
  const deps = {
    objects: world.objects,
    archive,
    log: createLog('silent'),
    graceMs: NO_GRACE,
  };
  world.source.entries = entries('2023-05-01T10:00:00Z', 100);
  await world.export('2023-05-01T11:00:00Z');
  const [ours = ''] = await world.objectKeys();
  const manifest = await readManifest(
    world.objects,
    `${ours}.manifest.json`,
    signal,
  );
  const foreign = ours.replace(/\.[0-9a-f]{12}\./, '.000000000000.');
  const other = {
    ...manifest,
    objectKey: foreign,
    warehouseId: randomUUID(),
    seq: 123_456n,
  };
  // Of 19 digits, and more than a bigint holds.
  const content = encodeManifest(other)
    .toString()
    .replace('"123456"', '"9999999999999999999"');
  await world.objects.publishBytes(foreign, Buffer.from('x'), signal);
  await world.objects.publishBytes(
    `${foreign}.manifest.json`,
    Buffer.from(content),
    signal,
  );
  const unfinished = ours.replace(/\.[0-9a-f]{12}\./, '.111111111111.');
  await world.objects.publishBytes(unfinished, Buffer.from('y'), signal);
  expect(await collectGarbage(deps, signal)).toMatchObject({
    removedObjects: 1,
    keptObjects: 1,
  });
  expect(await world.objectKeys()).toContain(foreign);
});

test('collectGarbage gives up after a limited number of manifests of other mirrors, and keeps all of them', async () => {
  await using world = await World.open(database);
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  world.source.entries = entries('2023-05-01T10:00:00Z', 100);
  await world.export('2023-05-01T11:00:00Z');
  const before = await world.objectKeys();
  const [ours = ''] = before;
  const manifest = await readManifest(world.objects, manifestKey(ours), signal);
  const warehouseId = randomUUID();
  for (let at = 0; at < 30; at += 1) {
    const digits = `${at}`.padStart(12, '0');
    const objectKey = ours.replace(/\.[0-9a-f]{12}\./, `.${digits}.`);
    const other = { ...manifest, objectKey, warehouseId };
    await world.objects.publishBytes(objectKey, Buffer.from('x'), signal);
    await world.objects.publishBytes(
      manifestKey(objectKey),
      encodeManifest(other),
      signal,
    );
  }
  let reads = 0;
  const counting = withOverrides(world.objects, {
    read: (...args: Parameters<ObjectStore['read']>) => {
      reads += 1;
      return world.objects.read(...args);
    },
  });
  const report = await collectGarbage(
    {
      objects: counting,
      archive: new ExportArchiveStore(warehouse.db),
      log: createLog('silent'),
      graceMs: NO_GRACE,
      foreignReadMax: 10,
    },
    signal,
  );
  expect(report).toMatchObject({ removedObjects: 0, keptObjects: 10 });
  expect(reads).toBe(10);
  expect(await world.objectKeys()).toHaveLength(before.length + 30);
});

describe('an object that nothing names, and that is published again at the same moment', () => {
  /** One that was superseded long ago, and its row of the manifest table. */
  async function superseded(world: World): Promise<string> {
    // So many that the double's order is the same each time.
    world.source.entries = entries('2023-05-01T10:00:00Z', 7, 0);
    await world.export('2023-05-01T11:00:00Z');
    await emptyCoverage(world.pool);
    await supersedeSegments(world.pool, '2000-01-01');
    const [key = ''] = await world.objectKeys();
    return key;
  }

  test('is kept where the publication was first', async () => {
    await using world = await World.open(database);
    await using warehouse = openWarehouse({
      url: database.url,
      onIdleError: () => undefined,
    });
    const archive = new ExportArchiveStore(warehouse.db);
    const key = await superseded(world);
    // Marked, and not removed yet.
    expect(await archive.markRetired(0)).toEqual([key]);
    const wasRemoved: boolean[] = [];
    await world.export(
      '2023-05-01T11:00:00Z',
      {},
      {
        failpoint: async (step) => {
          if (step === 'intended')
            wasRemoved.push(
              await archive.removeIfUnreferenced(key, signal, async () =>
                assert.fail(),
              ),
            );
        },
      },
    );
    wasRemoved.push(
      await archive.removeIfUnreferenced(key, signal, async () =>
        assert.fail(),
      ),
    );
    expect(wasRemoved).toEqual([false, false]);
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
  });

  test.each([
    ['before the intent', 'spooled'],
    ['after the intent', 'intended'],
  ] as const)(
    'is whole afterwards, whether the janitor comes %s',
    async (_, at) => {
      await using world = await World.open(database);
      await using warehouse = openWarehouse({
        url: database.url,
        onIdleError: () => undefined,
      });
      const archive = new ExportArchiveStore(warehouse.db);
      const key = await superseded(world);
      expect(await archive.markRetired(0)).toEqual([key]);
      const removed: boolean[] = [];
      const failpoint = async (step: string): Promise<void> => {
        if (step === at)
          removed.push(
            await archive.removeIfUnreferenced(key, signal, () =>
              world.objects.remove(key, signal),
            ),
          );
      };
      await world.export('2023-05-01T11:00:00Z', {}, { failpoint });
      expect(removed).toEqual([at === 'spooled']);
      expect(await world.rows()).toEqual(
        world.source.entries.map(row12).toSorted(),
      );
    },
  );
});

test('collectGarbage decides each object once, however its listing is ordered', async () => {
  await using world = await World.open(database);
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const files = Array.from({ length: 300 }, (_, index) =>
    segmentKeyOf(index.toString(16).padStart(12, '0')),
  );
  const foreign = segmentKeyOf('f'.repeat(12));
  const keys = [...files, foreign].flatMap((key) => [key, manifestKey(key)]);
  const removed: string[] = [];
  const objects = withOverrides<ObjectStore>(world.objects, {
    // The objects first, then their manifests, as a store without an order may list them.
    async *list() {
      for (const key of keys.toSorted(byManifestLast))
        yield { key, bytes: 1n, modifiedAt: 0n };
    },
    read: async (key) => {
      if (key === manifestKey(foreign))
        return Readable.from([Buffer.from('{')]);
      throw new PermanentError('Cannot read: it is missing', {
        code: 'OBJECT_MISSING',
      });
    },
    remove: async (key) => void removed.push(key),
  });
  const archive = new ExportArchiveStore(warehouse.db);
  const deps = {
    objects,
    archive,
    log: createLog('silent'),
    graceMs: NO_GRACE,
  };
  expect(await collectGarbage(deps, signal)).toMatchObject({
    removedObjects: files.length,
    keptObjects: 1,
  });
  expect(new Set(removed).size).toBe(removed.length);
});

function segmentKeyOf(sha: string): string {
  return `ledger/party=aa/asset=all/20230501T000000Z_20230502T000000Z.${sha}.csv`;
}

function byManifestLast(one: string, other: string): number {
  return Number(isManifestKey(one)) - Number(isManifestKey(other));
}
