/**
 * The owner of a store: a mirror claims its store, and nobody else writes there. Each test
 * has a store of its own; clones of the database are made by Postgres.
 */
import { unlink } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { OwnedStore } from '../../src/storage/owned-store.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import {
  examineStore,
  requireOwnership,
  takeOverStore,
} from '../../src/warehouse/store/store-ownership.ts';
import type { StoreAndCatalog } from '../../src/warehouse/store/unknown-objects.ts';
import { verify } from '../../src/warehouse/verify.ts';
import { VerifyStore } from '../../src/warehouse/store/verify-store.ts';
import { openFreshDatabase } from '../support/database.ts';
import { HEADER_12 } from '../ledger/csv.ts';
import { setWarehouseId } from '../support/mirror-arrange.ts';
import {
  PARTY_A,
  publish,
  row12,
  temporaryStore,
  WAREHOUSE_ID,
} from './published.ts';

const { signal } = new AbortController();
const MARCH = { from: '2023-03-01T00:00:00Z', to: '2023-04-01T00:00:00Z' };
const FOREIGN = { code: 'OBJECT_STORE_FOREIGN' };
const ELSEWHERE = { code: 'OBJECT_STORE_OWNED_ELSEWHERE' };
const EMPTY = { code: 'OBJECT_STORE_EMPTY' };

type Mirror = Awaited<ReturnType<typeof openMirror>>;

/** A mirror with a database of its own, on a store that may belong to another. */
async function openMirror(objects: ObjectStore) {
  const database = await openFreshDatabase({ isMigrated: true });
  const warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  onTestFinished(async () => {
    await warehouse[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
  });
  const catalog: StoreAndCatalog = { objects, db: warehouse.db };
  return { database, warehouse, catalog };
}

/** What a copy of the database knows; its oid is another. */
async function copyIdentity(from: Mirror, to: Mirror): Promise<void> {
  const { rows } = await from.database.pool.query<Record<string, string>>(
    'select mirror_id, warehouse_id, store_claim from mirror.identity',
  );
  const [row] = rows;
  await to.database.pool.query(
    'update mirror.identity set mirror_id = $1, warehouse_id = $2, store_claim = $3',
    [row?.['mirror_id'], row?.['warehouse_id'], row?.['store_claim']],
  );
}

function publishMarch(mirror: Mirror): Promise<{ readonly key: string }> {
  return publish(mirror.database.pool, mirror.catalog.objects, {
    party: PARTY_A,
    ...MARCH,
    header: HEADER_12,
    rows: [row12({ time: '2023-03-02 00:00:00+00' })],
  });
}

describe('the ownership of a store', () => {
  test('an empty store belongs to the first mirror that claims it, and to no second', async () => {
    const objects = await temporaryStore();
    const first = await openMirror(objects);
    const second = await openMirror(objects);
    expect(await examineStore(first.catalog, signal)).toBe('unclaimed');
    await requireOwnership(first.catalog, signal);
    await requireOwnership(first.catalog, signal);
    expect(await examineStore(first.catalog, signal)).toBe('owner');
    await expect(
      requireOwnership(second.catalog, signal),
    ).rejects.toMatchObject(FOREIGN);
    await expect(examineStore(second.catalog, signal)).rejects.toMatchObject(
      FOREIGN,
    );
  });

  test('of two mirrors that claim a store at once, exactly one owns it', async () => {
    const objects = await temporaryStore();
    const mirrors = [await openMirror(objects), await openMirror(objects)];
    const claims = await Promise.allSettled(
      mirrors.map(({ catalog }) => requireOwnership(catalog, signal)),
    );
    expect(claims.map(({ status }) => status).toSorted()).toEqual([
      'fulfilled',
      'rejected',
    ]);
  });

  test('processes of one mirror that claim a store at once all own it', async () => {
    const mirror = await openMirror(await temporaryStore());
    const claims = Array.from({ length: 4 }, () =>
      requireOwnership(mirror.catalog, signal),
    );
    await Promise.all(claims);
    expect(await examineStore(mirror.catalog, signal)).toBe('owner');
  });

  test('a copy of the database may read, and owns nothing', async () => {
    const objects = await temporaryStore();
    const original = await openMirror(objects);
    const clone = await openMirror(objects);
    await requireOwnership(original.catalog, signal);
    await copyIdentity(original, clone);
    expect(await examineStore(clone.catalog, signal)).toBe('reader');
    await expect(requireOwnership(clone.catalog, signal)).rejects.toMatchObject(
      ELSEWHERE,
    );
    expect(await examineStore(original.catalog, signal)).toBe('owner');
  });

  test('a database that takes over owns the store, and the former owner does not', async () => {
    const objects = await temporaryStore();
    const former = await openMirror(objects);
    const restored = await openMirror(objects);
    await requireOwnership(former.catalog, signal);
    await copyIdentity(former, restored);
    await takeOverStore(restored.catalog, signal);
    await requireOwnership(restored.catalog, signal);
    await expect(
      requireOwnership(former.catalog, signal),
    ).rejects.toMatchObject(ELSEWHERE);
  });

  test('a database that holds ledgers takes over no store of another mirror, and an empty one does', async () => {
    const objects = await temporaryStore();
    const owner = await openMirror(objects);
    await requireOwnership(owner.catalog, signal);
    const other = await openMirror(await temporaryStore());
    await publishMarch(other);
    const elsewhere = { ...other.catalog, objects };
    await expect(takeOverStore(elsewhere, signal)).rejects.toMatchObject(
      FOREIGN,
    );
    expect(await examineStore(owner.catalog, signal)).toBe('owner');
    const empty = await openMirror(objects);
    await takeOverStore(empty.catalog, signal);
    expect(await examineStore(empty.catalog, signal)).toBe('owner');
  });

  test('a rebuild that did not end leaves the store to the mirror that published in it', async () => {
    const objects = await temporaryStore();
    const original = await openMirror(objects);
    await requireOwnership(original.catalog, signal);
    await publishMarch(original);
    const empty = await openMirror(objects);
    await takeOverStore(empty.catalog, signal);
    await requireOwnership(empty.catalog, signal, true);

    expect(await examineStore(original.catalog, signal)).toBe('reader');
    await takeOverStore(original.catalog, signal);
    expect(await examineStore(original.catalog, signal)).toBe('owner');
  });

  test('a rebuild that claims a store without an owner leaves it to the mirror that published in it', async () => {
    const objects = await temporaryStore();
    const original = await openMirror(objects);
    await setWarehouseId(original.database.pool, WAREHOUSE_ID);
    await publishMarch(original);
    const empty = await openMirror(objects);
    await requireOwnership(empty.catalog, signal, true);

    expect(await examineStore(original.catalog, signal)).toBe('reader');
    await takeOverStore(original.catalog, signal);
    expect(await examineStore(original.catalog, signal)).toBe('owner');
  });

  test('an empty database that took over another mirror’s store names itself once it has published', async () => {
    const objects = await temporaryStore();
    const former = await openMirror(objects);
    await requireOwnership(former.catalog, signal);
    const successor = await openMirror(objects);
    await takeOverStore(successor.catalog, signal);
    await publishMarch(successor);
    await requireOwnership(successor.catalog, signal);

    expect(await examineStore(successor.catalog, signal)).toBe('owner');
    await expect(examineStore(former.catalog, signal)).rejects.toMatchObject(
      FOREIGN,
    );
  });

  test.each(['', '{', '{"version":2}', 'x'.repeat(100_000)])(
    'a store whose mirror.json was damaged is taken over by a word',
    async (damaged) => {
      const objects = await temporaryStore();
      const mirror = await openMirror(objects);
      await requireOwnership(mirror.catalog, signal);
      await publishMarch(mirror);
      await objects.replaceBytes('mirror.json', Buffer.from(damaged), signal);
      await expect(
        requireOwnership(mirror.catalog, signal),
      ).rejects.toMatchObject(FOREIGN);
      await takeOverStore(mirror.catalog, signal);
      expect(await examineStore(mirror.catalog, signal)).toBe('owner');
    },
  );

  test('a database that was killed amid taking over is no owner until it takes over again', async () => {
    const objects = await temporaryStore();
    const former = await openMirror(objects);
    const restored = await openMirror(objects);
    await requireOwnership(former.catalog, signal);
    await copyIdentity(former, restored);
    const { rows } = await restored.database.pool.query<{ claim: string }>(
      'select store_claim::text as claim from mirror.identity',
    );
    await takeOverStore(restored.catalog, signal);
    // The object was written, and the database has not recorded it yet.
    await restored.database.pool.query(
      'update mirror.identity set store_claim = $1',
      [rows[0]?.claim],
    );
    for (const { catalog } of [former, restored])
      await expect(requireOwnership(catalog, signal)).rejects.toMatchObject(
        ELSEWHERE,
      );
    await takeOverStore(restored.catalog, signal);
    expect(await examineStore(restored.catalog, signal)).toBe('owner');
  });

  test('a file copy of the database server loses the store to whichever took it over', async () => {
    const objects = await temporaryStore();
    const mirror = await openMirror(objects);
    await requireOwnership(mirror.catalog, signal);
    const { rows } = await mirror.database.pool.query<Record<string, string>>(
      'select store_claim from mirror.identity',
    );
    await takeOverStore(mirror.catalog, signal);
    // The copy has the same identifiers, and the claim of before.
    await mirror.database.pool.query(
      'update mirror.identity set store_claim = $1',
      [rows[0]?.['store_claim']],
    );
    await expect(
      requireOwnership(mirror.catalog, signal),
    ).rejects.toMatchObject(ELSEWHERE);
  });

  test('a store of an earlier version is claimed by the mirror that has objects in it', async () => {
    const objects = await temporaryStore();
    const mirror = await openMirror(objects);
    await publishMarch(mirror);
    await requireOwnership(mirror.catalog, signal);
    expect(await examineStore(mirror.catalog, signal)).toBe('owner');
  });

  test('a mirror refuses a store that lacks all of its objects, claimed or not', async () => {
    const mirror = await openMirror(await temporaryStore());
    await publishMarch(mirror);
    const elsewhere = { ...mirror.catalog, objects: await temporaryStore() };
    await expect(examineStore(elsewhere, signal)).rejects.toMatchObject(EMPTY);
    await expect(requireOwnership(elsewhere, signal)).rejects.toMatchObject(
      EMPTY,
    );

    await requireOwnership(mirror.catalog, signal);
    await expect(examineStore(elsewhere, signal)).rejects.toMatchObject(EMPTY);
    await takeOverStore(elsewhere, signal);
    expect(await examineStore(elsewhere, signal)).toBe('owner');
  });

  test('a new mirror refuses a store with objects of another, unless it is rebuilt from them', async () => {
    const objects = await temporaryStore();
    const lost = await openMirror(objects);
    const empty = await openMirror(objects);
    await publishMarch(lost);
    await expect(requireOwnership(empty.catalog, signal)).rejects.toMatchObject(
      FOREIGN,
    );
    await requireOwnership(empty.catalog, signal, true);
    expect(await examineStore(empty.catalog, signal)).toBe('owner');
  });

  test('a store whose mirror.json cannot be read is refused', async () => {
    const objects = await temporaryStore();
    await objects.replaceBytes('mirror.json', Buffer.from('{'), signal);
    const mirror = await openMirror(objects);
    await expect(
      requireOwnership(mirror.catalog, signal),
    ).rejects.toMatchObject(FOREIGN);
  });
});

describe('what others may do', () => {
  test('every call that changes a store is refused to others, and reads are not', async () => {
    const objects = await temporaryStore();
    const owner = await openMirror(objects);
    const other = await openMirror(objects);
    await requireOwnership(owner.catalog, signal);
    const owned = new OwnedStore(objects, (stop) =>
      requireOwnership(other.catalog, stop),
    );
    const content = Buffer.from('content');
    const facts = { bytes: 0n, sha256: '' };
    const changes = [
      owned.publishBytes('a/b', content, signal),
      owned.putIfAbsent('a/b', content, signal),
      owned.replaceBytes('a/b', content, signal),
      owned.publishFile('a/b', 'none', facts, signal),
      owned.remove('mirror.json', signal),
      owned.removeAbandoned(0, signal),
    ];
    for (const { status, ...result } of await Promise.allSettled(changes)) {
      expect([status, result]).toMatchObject(['rejected', { reason: FOREIGN }]);
    }
    expect(await owned.head('mirror.json', signal)).toBeDefined();
  });

  test('a clone that verifies reports a lost object, and distrusts no segment', async () => {
    const objects = await temporaryStore();
    const mirror = await openMirror(objects);
    const { key } = await publishMarch(mirror);
    await unlink(fileURLToPath(new URL(key, `${objects.url}/`)));
    const repository = new VerifyStore(mirror.warehouse);
    const deps = { repository, objects };
    const report = await verify(deps, signal, { mayDistrust: false });
    expect(report.problems.map(({ code }) => code)).toContain('OBJECT_MISSING');
    const { rows } = await mirror.database.pool.query(
      'select from mirror.segments where quarantine_reason is not null',
    );
    expect(rows).toEqual([]);
  });
});
