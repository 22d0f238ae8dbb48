/** A bit that flips on the way from the store: the object itself is whole. */
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { LoadStore } from '../../../src/warehouse/store/load-store.ts';
import { VerifyStore } from '../../../src/warehouse/store/verify-store.ts';
import { loadAll } from '../../../src/warehouse/load-all.ts';
import { verify } from '../../../src/warehouse/verify.ts';
import type { ObjectStore } from '../../../src/storage/object-store.ts';
import { loadWorld } from '../load-world.ts';
import { PARTY_A, publish, row12 } from '../published.ts';
import { publishedSegments } from '../../support/mirror-state.ts';

const world = await loadWorld();
const { database, warehouse } = world;
const signal = new AbortController().signal;
const MAY = { from: '2023-05-01T00:00:00Z', to: '2023-06-01T00:00:00Z' };

/** The first `times` readings of the object arrive with one bit flipped. */
function flipping(
  objects: ObjectStore,
  objectKey: string,
  times: number,
): ObjectStore & { readings: number } {
  let readings = 0;
  const read: ObjectStore['read'] = async (key, ...rest) => {
    const content = await buffer(await objects.read(key, ...rest));
    if (key !== objectKey) return Readable.from([content]);
    readings += 1;
    if (readings <= times)
      content.writeUInt8(
        content.readUInt8(content.length >> 1) ^ 4,
        content.length >> 1,
      );
    return Readable.from([content]);
  };
  const flipped = new Proxy(objects, {
    get: (store, name) => {
      if (name === 'read') return read;
      if (name === 'readings') return readings;
      const own: unknown = Reflect.get(store, name);
      return typeof own === 'function' ? (own.bind(store) as unknown) : own;
    },
  });
  return flipped as ObjectStore & { readings: number };
}

describe.each(['none', 'zstd'] as const)(
  'a bit flipped on the way, %s',
  (compression) => {
    async function published(): Promise<string> {
      const rows = ['2023-05-01 12:00:00.1+00', '2023-05-02 12:00:00.1+00'].map(
        (time) => row12({ time, from: PARTY_A, to: 'network' }),
      );
      await publish(database.pool, world.objects, {
        party: PARTY_A,
        ...MAY,
        rows,
        compression,
      });
      return (await publishedSegments(database.pool))[0]?.objectKey ?? '';
    }

    test('once is repaired by a second reading of the segment', async () => {
      const objects = flipping(world.objects, await published(), 1);
      const outcome = await loadAll(
        { repository: new LoadStore(warehouse), objects },
        signal,
      );
      expect(outcome).toMatchObject({
        verdict: 'complete',
        rows: 2n,
        quarantinedCount: 0,
      });
      expect(objects.readings).toBe(2);
    });

    test('each time quarantines the segment', async () => {
      const objects = flipping(world.objects, await published(), 2);
      const outcome = await loadAll(
        { repository: new LoadStore(warehouse), objects },
        signal,
      );
      expect(outcome).toMatchObject({
        verdict: 'incomplete',
        rows: 0n,
        quarantinedCount: 1,
      });
    });

    test('once is no finding of verify', async () => {
      const key = await published();
      await loadAll(
        { repository: new LoadStore(warehouse), objects: world.objects },
        signal,
      );
      const objects = flipping(world.objects, key, 1);
      const report = await verify(
        { repository: new VerifyStore(warehouse), objects },
        signal,
        { deep: true },
      );
      expect(report).toMatchObject({ verdict: 'complete', problemCount: 0 });
      expect(objects.readings).toBe(2);
    });
  },
);
