/** What a segment's row records when the same object comes back. */
import { expect, test } from 'vitest';
import { insertSegments, segmentRow } from '../../src/catalog/segment-rows.ts';
import { manifestKey } from '../../src/ledger/object-keys.ts';
import { readManifest } from '../../src/ledger/manifest.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { signal, World } from '../exports/export-world.ts';
import { entries } from '../exports/ledger-double.ts';
import { freshDatabase } from '../support/database.ts';

const database = await freshDatabase({ isMigrated: true });

test('a lost object that comes back in other compressed bytes is recorded with these', async () => {
  await using world = await World.open(database);
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  world.source.entries = entries('2023-05-01T10:00:00Z', 20);
  await world.export('2023-05-01T11:00:00Z');
  const [key = ''] = await world.objectKeys();
  const manifest = await readManifest(world.objects, manifestKey(key), signal);
  const again = {
    ...manifest,
    objectBytes: manifest.objectBytes + 13n,
    objectSha256: 'f'.repeat(64),
  };

  await insertSegments(warehouse.db, [segmentRow(again, {})]);

  const { rows } = await database.pool.query(
    'select object_bytes, object_sha256 from mirror.segments where object_key = $1',
    [key],
  );
  expect(rows).toEqual([
    {
      object_bytes: String(again.objectBytes),
      object_sha256: again.objectSha256,
    },
  ]);
});
