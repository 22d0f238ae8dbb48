/**
 * Rows of segments: what a rebuild learned late never takes the place of what was
 * published meanwhile.
 */
import { describe, expect, test } from 'vitest';
import { insertSegments, segmentRow } from '../../src/catalog/segment-rows.ts';
import { manifestKey } from '../../src/ledger/object-keys.ts';
import { readManifest } from '../../src/ledger/manifest.ts';
import { loadWorld } from '../warehouse/load-world.ts';
import { PARTY_A, publish, row12 } from '../warehouse/published.ts';
import { publishedSegments } from '../support/mirror-state.ts';

const world = await loadWorld();
const MAY = { from: '2023-05-01T00:00:00Z', to: '2023-06-01T00:00:00Z' };

describe('insertSegments', () => {
  test('leaves a segment current that was published while a rebuild thought it superseded', async () => {
    const { database, warehouse, objects } = world;
    const rows = [row12({ time: '2023-05-01 12:00:00' })];
    const { key } = await publish(database.pool, objects, {
      party: PARTY_A,
      ...MAY,
      rows,
    });
    const manifest = await readManifest(
      objects,
      manifestKey(key),
      new AbortController().signal,
    );

    await insertSegments(warehouse.db, [
      segmentRow(manifest, { rebuilt: true }, 'superseded'),
    ]);

    expect(await publishedSegments(database.pool)).toMatchObject([
      { objectKey: key, isCurrent: true },
    ]);
  });
});
