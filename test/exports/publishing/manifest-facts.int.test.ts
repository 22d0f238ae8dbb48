/**
 * What published manifests carry for a rebuild of a lost database: tails, the epoch, the
 * release.
 */
import { expect, test } from 'vitest';
import { type Manifest, readManifest } from '../../../src/ledger/manifest.ts';
import { manifestKey } from '../../../src/ledger/object-keys.ts';
import { freshDatabase } from '../../support/database.ts';
import { NEVER_ABORTED } from '../../support/samples.ts';
import { World } from '../export-world.ts';
import { entries, PARTY } from '../ledger-double.ts';

const database = await freshDatabase({ isMigrated: true });

test('a closed segment’s manifest has the tail, the epoch and the release that its coverage has', async () => {
  await using world = await World.open(database);
  await setEpoch(3);
  world.source.entries = entries('2023-05-01T10:00:00Z', 100);
  await world.export('2023-05-01T11:00:30Z');
  const manifests = await manifestsOf(world);
  const closed = manifests.find(({ open }) => !open);
  const open = manifests.find((manifest) => manifest.open);

  const [coverage] = await world.repository.coverage({ partyId: PARTY });
  expect(coverage?.tail?.rows).toBeGreaterThan(0);
  expect(closed?.tail).toEqual(coverage?.tail);
  expect([closed?.epoch, open?.epoch]).toEqual([3, 3]);
  expect(closed?.release).toMatchObject({ bounds: 'right', sides: 'from' });
  // What is still growing is requested whole again, so it has no tail.
  expect(open?.tail).toBeUndefined();
});

test('the manifest of an answer cut into windows has a tail in each closed segment that ends a window', async () => {
  await using world = await World.open(database);
  world.source.entries = entries('2023-05-01T10:00:00Z', 400);
  await world.export('2023-05-02T11:00:00Z', {}, { segmentBytesMax: 16_384 });
  const coverage = await world.repository.coverage({ partyId: PARTY });
  const byKey = new Map(coverage.map((row) => [row.objectKey, row.tail]));
  for (const manifest of await manifestsOf(world))
    expect(manifest.tail).toEqual(byKey.get(manifest.objectKey));
});

async function manifestsOf(world: World): Promise<Manifest[]> {
  const keys = await world.objectKeys();
  return Promise.all(
    keys.map((key) =>
      readManifest(world.objects, manifestKey(key), NEVER_ABORTED),
    ),
  );
}

async function setEpoch(epoch: number): Promise<void> {
  await database.pool.query(
    `insert into mirror.checkpoints (epoch, at_block, hash, block_hash, extra)
     values ($1, 1, 'aa', 'bb', '{}')`,
    [epoch],
  );
}
