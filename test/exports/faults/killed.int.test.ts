import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ExportArchiveStore } from '../../../src/exports/store/export-archive.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { createLog } from '../../../src/logging/log.ts';
import { collectGarbage } from '../../../src/exports/publishing/garbage-collection.ts';
import { openFileStore } from '../../../src/storage/file-store.ts';
import type { ObjectStore } from '../../../src/storage/object-store.ts';
import { freshDatabase } from '../../support/database.ts';
import { signal, World } from '../export-world.ts';
import { killAt, LARGE, NOW } from './killed-case.ts';
import { entries, row12 } from '../ledger-double.ts';
import {
  publishedSegments,
  publishingRuns,
  recordedExports,
} from '../../support/mirror-state.ts';
import {
  addRun,
  changePublications,
  emptySegments,
  setPublicationSeq,
} from '../../support/mirror-arrange.ts';
import { withOverrides } from '../../support/with-overrides.ts';

const database = await freshDatabase({ isMigrated: true });
/** So small that the ledger comes in several. */
const WINDOWS = { segmentBytesMax: 2 ** 16 };
/** Rows of objects that a reader who goes by the tables would see. */
async function visibleSegments(world: World): Promise<number> {
  return (await publishedSegments(world.pool)).length;
}

describe('a worker killed with -9', () => {
  test.each([
    ['claimed', 1],
    ['asked', 1],
    ['spooled', 1],
    ['intended', 1],
    ['object', 1],
    ['object', 2],
    ['manifest', 2],
    ['committed', 1],
  ])(
    'at %s (%d): nothing half is visible, the next one ends with exactly the rows',
    async (step, nth) => {
      await using world = await World.open(database);
      world.source.entries = LARGE;
      await killAt(world, database.url, step, nth);
      expect(await visibleSegments(world)).toBe(step === 'committed' ? 2 : 0);
      await world.expireLeases();
      const outcome = await world.export(NOW, {}, { segmentBytesMax: 2 ** 28 });
      expect(outcome.verdict).toBe('complete');
      expect(await world.rows()).toEqual(LARGE.map(row12).toSorted());
      expect(await world.spooled()).toEqual([]);
      // What was intended is finished without asking for it again: only the present is.
      const isFinished = [
        'intended',
        'object',
        'manifest',
        'committed',
      ].includes(step);
      expect(world.source.asked[0]?.from !== undefined).toBe(isFinished);
    },
  );

  test('leaves objects without a manifest row, which the janitor removes and no others', async () => {
    await using world = await World.open(database);
    world.source.entries = LARGE;
    await killAt(world, database.url, 'object', 2);
    // Its run is known: only what a database has forgotten could be the only copy.
    for (const runId of await publishingRuns(world.pool))
      await addRun(world.pool, {
        run_id: runId,
        kind: 'export',
        subject: 'killed',
      });
    await changePublications(world.pool, 'intent', 'dropped');
    await world.expireLeases();
    await world.export('2023-05-01T14:10:00Z');
    const kept = await world.rows();
    await using warehouse = openWarehouse({
      url: database.url,
      onIdleError: () => undefined,
    });
    const archive = new ExportArchiveStore(warehouse.db);
    const log = createLog('silent');
    const deps = { objects: world.objects, archive, log };
    expect(await collectGarbage(deps, signal)).toMatchObject({
      removedObjects: 0,
    });
    expect(
      await collectGarbage({ ...deps, graceMs: -1000 }, signal),
    ).toMatchObject({
      removedObjects: 2,
    });
    expect(await world.rows()).toEqual(kept);
    // A database put back to before these publications must not take their objects for
    // rubbish.
    await emptySegments(world.pool);
    await setPublicationSeq(world.pool, 0n);
    expect(
      await collectGarbage({ ...deps, graceMs: -1000 }, signal),
    ).toMatchObject({
      removedObjects: 0,
      keptObjects: 2,
    });
    await setPublicationSeq(world.pool, 1_000n);
  });
});

test('a process killed amid a manifest leaves nothing behind after the next run', async () => {
  await using world = await World.open(database);
  world.source.entries = LARGE;
  const killed = new Error('killed');
  const store = openFileStore(join(world.folder, 'objects'));
  const publishBytes: ObjectStore['publishBytes'] = async (
    key,
    content,
    _,
    prefix,
  ) => {
    // As far as it gets before a kill: the bytes lie in the spool, under no key yet.
    await writeFile(
      await store.spoolPath(`${prefix}bytes.half`),
      content.subarray(0, key.length),
    );
    throw killed;
  };
  const objects = withOverrides<ObjectStore>(store, { publishBytes });
  await expect(world.export(NOW, {}, { objects })).rejects.toThrow(killed);
  expect(
    (await world.spooled()).some((name) => name.endsWith('bytes.half')),
  ).toBe(true);
  await world.export(NOW);
  expect(await world.spooled()).toEqual([]);
  expect(await world.rows()).toEqual(LARGE.map(row12).toSorted());
});

describe('two workers that both believe they hold the export', () => {
  test.each(['spooled', 'intended', 'object', 'manifest'])(
    'the other comes at %s: one is fenced, and nothing is counted against it',
    async (at) => {
      await using world = await World.open(database);
      world.source.entries = LARGE;
      let isOvertaken = false;
      const zombie = world.export(
        NOW,
        {},
        {
          segmentBytesMax: 2 ** 28,
          failpoint: async (step) => {
            if (step !== at || isOvertaken) return;
            isOvertaken = true;
            await world.expireLeases();
            await world.export(NOW);
          },
        },
      );
      await expect(zombie).rejects.toThrow(
        expect.objectContaining({ code: 'FENCED' }),
      );
      await world.export(NOW);
      expect(await world.rows()).toEqual(LARGE.map(row12).toSorted());
      expect(await world.spooled()).toEqual([]);
      expect(await recordedExports(world.pool)).toMatchObject([
        { attempts: 0 },
      ]);
    },
  );
});

test.each(['asked', 'spooled', 'intended', 'object', 'manifest', 'committed'])(
  'told to stop at %s: nothing half is visible, nothing is counted, and the next one goes on at once',
  async (at) => {
    await using world = await World.open(database);
    world.source.entries = LARGE;
    const stop = new AbortController();
    const stopped = world.export(
      NOW,
      {},
      {
        segmentBytesMax: 2 ** 28,
        failpoint: (step) => {
          if (step === at) stop.abort(new Error('told to stop'));
        },
      },
      stop.signal,
    );
    const isThrown = await stopped.then(
      () => false,
      () => stop.signal.aborted,
    );
    expect(isThrown).toBe(at !== 'committed');
    expect((await visibleSegments(world)) > 0).toBe(at === 'committed');
    // Its leases were given back: nobody waits for them to run out.
    await world.export(NOW, {}, { segmentBytesMax: 2 ** 28, waitMs: 0 });
    expect(await world.rows()).toEqual(LARGE.map(row12).toSorted());
    expect(await world.spooled()).toEqual([]);
    // What was received whole is finished from the spool: only the present is asked for.
    expect(world.source.asked[1]?.from !== undefined).toBe(at !== 'asked');
    expect(await recordedExports(world.pool)).toMatchObject([{ attempts: 0 }]);
  },
);

describe('the evidence of a run', () => {
  test('counts what it published before it was told to stop, between two windows', async () => {
    await using world = await World.open(database);
    world.source.entries = LARGE;
    const runId = randomUUID();
    const stop = new AbortController();
    const failpoint = (step: string): void => {
      if (step === 'committed') stop.abort(new Error('told to stop'));
    };
    const stopped = world.export(
      NOW,
      { runId },
      { ...WINDOWS, failpoint },
      stop.signal,
    );
    await expect(stopped).rejects.toThrow('told to stop');
    const before = await visibleSegments(world);
    expect(before).toBeGreaterThan(0);
    const outcome = await world.export(NOW, { runId }, WINDOWS);
    expect(await visibleSegments(world)).toBeGreaterThan(before);
    expect(outcome).toMatchObject({
      verdict: 'complete',
      rows: BigInt(LARGE.length),
    });
  });

  test('counts each row once, where its second worker replaced what the first, killed, had published', async () => {
    await using world = await World.open(database);
    world.source.entries = LARGE;
    await killAt(world, database.url, 'committed', 1);
    const [{ runId } = { runId: '' }] = await publishedSegments(world.pool);
    await world.expireLeases();
    const later = entries('2023-05-01T13:59:30Z', 5, 1);
    world.source.entries = [...LARGE, ...later];
    const outcome = await world.export(NOW, { runId });
    const all = await world.rows();
    expect(all).toEqual(world.source.entries.map(row12).toSorted());
    expect(outcome).toMatchObject({
      verdict: 'complete',
      rows: BigInt(all.length),
    });
    expect(outcome.evidence).toMatchObject({
      publishedRows: String(all.length),
      segments: 2,
    });
  });
});
