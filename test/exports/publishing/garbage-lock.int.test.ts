/** Garbage collection deletes only while it holds the lock on an object's key. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { collectGarbage } from '../../../src/exports/publishing/garbage-collection.ts';
import { ExportArchiveStore } from '../../../src/exports/store/export-archive.ts';
import { manifestKey } from '../../../src/ledger/object-keys.ts';
import { createLog } from '../../../src/logging/log.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import type { ObjectStore } from '../../../src/storage/object-store.ts';
import { freshDatabase } from '../../support/database.ts';
import {
  emptyCoverage,
  supersedeSegments,
} from '../../support/mirror-arrange.ts';
import { NEVER_ABORTED } from '../../support/samples.ts';
import { World } from '../export-world.ts';
import { entries } from '../ledger-double.ts';
import { withOverrides } from '../../support/with-overrides.ts';

const database = await freshDatabase({ isMigrated: true });
const NO_GRACE_MS = -1000;
/** Longer than Postgres lets a transaction be idle (`IDLE_IN_TRANSACTION_MS`). */
const SLOW_DELETE_MS = 11_500;

test(
  'a delete that takes longer than a transaction may be idle keeps its lock',
  { timeout: 60_000 },
  async () => {
    await using scene = await openScene();
    let wasLocked: boolean | undefined;
    const remove: ObjectStore['remove'] = async (key, signal) => {
      if (key === scene.key) {
        await sleep(SLOW_DELETE_MS);
        wasLocked = await isLocked(scene.key);
      }
      await scene.world.objects.remove(key, signal);
    };
    expect(await scene.collect(remove)).toMatchObject({ removedObjects: 1 });
    expect(wasLocked).toBe(true);
  },
);

test('garbage collection whose lock is lost between two deletes does not do the second', async () => {
  await using scene = await openScene();
  const deleted: string[] = [];
  const remove: ObjectStore['remove'] = async (key, signal) => {
    deleted.push(key);
    await scene.world.objects.remove(key, signal);
    await endLockHolder(scene.key);
  };
  await expect(scene.collect(remove)).rejects.toMatchObject({
    code: 'DATABASE_UNREACHABLE',
  });
  expect(deleted).toEqual([manifestKey(scene.key)]);
  expect(await scene.world.objectKeys()).toContain(scene.key);
});

test('a delete is cancelled when its lock is lost while it runs', async () => {
  await using scene = await openScene();
  const remove: ObjectStore['remove'] = async (key, signal) => {
    await endLockHolder(scene.key);
    await sleep(5_000, undefined, { signal });
    await scene.world.objects.remove(key, signal);
  };
  await expect(scene.collect(remove)).rejects.toMatchObject({
    code: expect.stringMatching(/^DATABASE_/),
  });
  expect(await scene.world.keys()).toContain(manifestKey(scene.key));
});

interface Scene extends AsyncDisposable {
  readonly world: World;
  /** The object of a superseded segment, which garbage collection removes. */
  readonly key: string;
  collect(remove: ObjectStore['remove']): ReturnType<typeof collectGarbage>;
}

async function openScene(): Promise<Scene> {
  const world = await World.open(database);
  const warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  world.source.entries = entries('2023-05-01T10:00:00Z', 7, 0);
  await world.export('2023-05-01T11:00:00Z');
  await emptyCoverage(world.pool);
  await supersedeSegments(world.pool, '2000-01-01');
  const [key = ''] = await world.objectKeys();
  return {
    world,
    key,
    collect: (remove) =>
      collectGarbage(
        {
          objects: withOverrides<ObjectStore>(world.objects, { remove }),
          archive: new ExportArchiveStore(warehouse.db),
          log: createLog('silent'),
          graceMs: NO_GRACE_MS,
        },
        NEVER_ABORTED,
      ),
    [Symbol.asyncDispose]: async () => {
      await warehouse[Symbol.asyncDispose]();
      await world[Symbol.asyncDispose]();
    },
  };
}

/**
 * Whether another session holds the lock that a publication of the object would wait for.
 */
async function isLocked(key: string): Promise<boolean> {
  const { rows } = await database.pool.query<{ isFree: boolean }>(
    `select pg_try_advisory_xact_lock(mirror.lock_key($1)) as "isFree"`,
    [`object ${key}`],
  );
  return rows[0]?.isFree === false;
}

/** Ends the connection that holds the lock, as a failover or a restart would. */
async function endLockHolder(key: string): Promise<void> {
  await database.pool.query(
    `select pg_terminate_backend(pid) from pg_locks
     where locktype = 'advisory' and granted
       and ((classid::bigint << 32) | objid::bigint) = mirror.lock_key($1)`,
    [`object ${key}`],
  );
}
