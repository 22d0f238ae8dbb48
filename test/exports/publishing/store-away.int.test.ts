/** A store that is lost when an answer has been received whole. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { UnreachableError } from '../../../src/errors/errors.ts';
import { openFileStore } from '../../../src/storage/file-store.ts';
import type { ObjectStore } from '../../../src/storage/object-store.ts';
import { freshDatabase } from '../../support/database.ts';
import { World } from '../export-world.ts';
import { at, entries } from '../ledger-double.ts';

const database = await freshDatabase({ isMigrated: true });

function openLostStore(folder: string): ObjectStore {
  const head = (): Promise<never> => {
    throw new UnreachableError('Cannot look up: no connection', {
      code: 'OBJECT_STORE_UNREACHABLE',
    });
  };
  return { ...openFileStore(folder), head };
}

describe('publishing an object', () => {
  test('keeps what was received where the store is away, and publishes it without the source', async () => {
    await using world = await World.open(database);
    world.source.entries.push(...entries('2023-05-01T10:00:00Z', 2));
    const range = { from: at('2023-05-01T09:00:00Z'), to: at('2023-05-01T10:30:00Z') };
    const objects = openLostStore(join(world.folder, 'objects'));
    await expect(
      world.export('2023-05-01T11:00:00Z', range, { objects }),
    ).rejects.toMatchObject({
      code: 'OBJECT_STORE_UNREACHABLE',
    });
    const asked = world.source.asked.length;
    const healed = await world.export('2023-05-01T11:00:00Z', range);
    expect(await world.rows()).toHaveLength(2);
    expect([healed.verdict, healed.rows]).toEqual(['complete', 2n]);
    expect(world.source.asked.length).toBe(asked);
  });
});
