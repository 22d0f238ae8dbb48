/**
 * A store that is away, refuses, or has archived an object when a whole answer is to be
 * published.
 */
import { buffer } from 'node:stream/consumers';
import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import {
  PermanentError,
  UnreachableError,
} from '../../../src/errors/errors.ts';
import { contentFacts } from '../../../src/files/byte-counter.ts';
import {
  encodeManifest,
  MANIFEST_BYTES_MAX,
  readManifest,
} from '../../../src/ledger/manifest.ts';
import { manifestKey } from '../../../src/ledger/object-keys.ts';
import type { ObjectStore } from '../../../src/storage/object-store.ts';
import { freshDatabase } from '../../support/database.ts';
import {
  emptyCoverage,
  supersedeSegments,
} from '../../support/mirror-arrange.ts';
import { currentSegments } from '../../support/mirror-state.ts';
import { NEVER_ABORTED } from '../../support/samples.ts';
import { World } from '../export-world.ts';
import { at, entries, row12 } from '../ledger-double.ts';
import { withOverrides } from '../../support/with-overrides.ts';

const database = await freshDatabase({ isMigrated: true });
const NOW = '2023-05-01T11:00:00Z';
const RANGE = {
  from: at('2023-05-01T09:00:00Z'),
  to: at('2023-05-01T10:30:00Z'),
};
const AWAY = new UnreachableError('Cannot look up: no connection', {
  code: 'OBJECT_STORE_UNREACHABLE',
});
const REFUSED = new PermanentError('Cannot look up: 403 AccessDenied', {
  code: 'OBJECT_STORE_REFUSED',
});
const ARCHIVED = new PermanentError('Cannot read: 403 InvalidObjectState', {
  code: 'OBJECT_STORE_ARCHIVED',
});

describe('an export whose answer is received whole', () => {
  test.each([
    ['is away', AWAY],
    ['refuses', REFUSED],
  ])(
    'keeps it while the store %s, and publishes it later without the source',
    async (_state, error) => {
      await using world = await World.open(database);
      world.source.entries.push(...entries('2023-05-01T10:00:00Z', 2));
      const head = () => Promise.reject(error);
      const objects = withOverrides<ObjectStore>(world.objects, { head });
      for (let attempt = 1; attempt <= 2; attempt += 1)
        await expect(
          world.export(NOW, RANGE, { objects }),
        ).rejects.toMatchObject({
          code: error.code,
        });
      const requests = world.source.asked.length;
      const healed = await world.export(NOW, RANGE);
      expect(await world.rows()).toHaveLength(2);
      expect([healed.verdict, healed.rows]).toEqual(['complete', 2n]);
      expect(world.source.asked.length).toBe(requests);
    },
  );
});

describe('an export that meets an archived object with the same rows', () => {
  test('takes the object as it is if its manifest describes it', async () => {
    await using world = await World.open(database);
    const key = await openRecompressed(world);
    expect(
      await world.export(NOW, {}, { objects: archivedStore(world) }),
    ).toMatchObject({
      verdict: 'complete',
    });
    expect(await world.objectKeys()).toEqual([key]);
    expect(await world.rows()).toEqual(
      world.source.entries.map(row12).toSorted(),
    );
  });

  test('ends with the store’s refusal if no manifest describes it, and removes nothing', async () => {
    await using world = await World.open(database);
    const key = await openRecompressed(world);
    await world.objects.remove(manifestKey(key), NEVER_ABORTED);
    await expect(
      world.export(NOW, {}, { objects: archivedStore(world) }),
    ).rejects.toMatchObject({ code: 'OBJECT_STORE_ARCHIVED' });
    expect(await world.objectKeys()).toEqual([key]);
  });
});

test('an export replaces what is no manifest under its manifest’s key', async () => {
  await using world = await World.open(database);
  const key = await openRecompressed(world);
  const large = Buffer.alloc(MANIFEST_BYTES_MAX + 1, ' ');
  await world.objects.remove(manifestKey(key), NEVER_ABORTED);
  await world.objects.publishBytes(manifestKey(key), large, NEVER_ABORTED);
  expect(await world.export(NOW)).toMatchObject({ verdict: 'complete' });
  const manifest = await readManifest(
    world.objects,
    manifestKey(key),
    NEVER_ABORTED,
  );
  expect(manifest.objectKey).toBe(key);
});

/**
 * Publishes a ledger, forgets it in the database, and compresses its object anew, as
 * another version of the library would. @returns the object's key
 */
async function openRecompressed(world: World): Promise<string> {
  // So many entries of one second come in the same order each time.
  world.source.entries = entries('2023-05-01T10:00:00Z', 7, 0);
  await world.export(NOW);
  const [segment] = await currentSegments(world.pool);
  const key = segment?.objectKey ?? '';
  await emptyCoverage(world.pool);
  await supersedeSegments(world.pool, '2000-01-01');
  const manifest = await readManifest(
    world.objects,
    manifestKey(key),
    NEVER_ABORTED,
  );
  const stored = await buffer(await world.objects.read(key, NEVER_ABORTED));
  const params = { [constants.ZSTD_c_compressionLevel]: 1 };
  const other = zstdCompressSync(zstdDecompressSync(stored), { params });
  const { bytes: objectBytes, sha256: objectSha256 } = contentFacts(other);
  expect(objectSha256).not.toBe(manifest.objectSha256);
  await replace(world.objects, key, other);
  const described = encodeManifest({ ...manifest, objectBytes, objectSha256 });
  await replace(world.objects, manifestKey(key), described);
  return key;
}

async function replace(objects: ObjectStore, key: string, content: Buffer) {
  await objects.remove(key, NEVER_ABORTED);
  await objects.publishBytes(key, content, NEVER_ABORTED);
}

/** Manifests are readable, objects are not: lifecycle rules spare small objects. */
function archivedStore({ objects }: World): ObjectStore {
  return withOverrides<ObjectStore>(objects, {
    read: (key, signal, range) =>
      key.endsWith('.json')
        ? objects.read(key, signal, range)
        : Promise.reject(ARCHIVED),
  });
}
