import { readFile, rename, unlink, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, test } from 'vitest';
import { segmentRow } from '../../src/catalog/segment-rows.ts';
import { decodeManifest, encodeManifest } from '../../src/ledger/manifest.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import type { LoadDeps } from '../../src/warehouse/load-all.ts';
import {
  rebuildIfEmpty,
  adoptUnknownManifests,
} from '../../src/warehouse/store/rebuild.ts';
import { verify, type VerifyReport } from '../../src/warehouse/verify.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { VerifyStore } from '../../src/warehouse/store/verify-store.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { PermanentError } from '../../src/errors/errors.ts';
import { readIdentity } from '../../src/postgres/identity.ts';
import { loadWorld } from './load-world.ts';
import { HEADER_12, HEADER_13 } from '../ledger/csv.ts';
import {
  PARTY_A,
  PARTY_B,
  publish,
  row12,
  row13,
  WAREHOUSE_ID,
} from './published.ts';
import {
  addParties,
  emptyLedgers,
  setWarehouseId,
} from '../support/mirror-arrange.ts';
import { withOverrides } from '../support/with-overrides.ts';

const world = await loadWorld();
const { database, warehouse } = world;

const signal = new AbortController().signal;
const APRIL_TO_JUNE = {
  from: '2023-04-01T00:00:00Z',
  to: '2023-06-01T00:00:00Z',
};

let objects: ObjectStore;
let deps: LoadDeps;

beforeEach(() => {
  ({ objects } = world);
  deps = { repository: new LoadStore(warehouse), objects };
});

async function publishBoth(): Promise<{ key: string; segmentId: bigint }> {
  const times = [
    '2023-04-30 23:59:59.5+00',
    '2023-05-01 00:00:00+00',
    '2023-05-01 00:00:00+00',
  ];
  const header = `${HEADER_12},note`;
  const rows = times.map(
    (time) => `${row12({ time })},"back\\slash, tab\t and ""quotes"""`,
  );
  const first = await publish(database.pool, objects, {
    party: PARTY_A,
    ...APRIL_TO_JUNE,
    header,
    rows,
  });
  const later = times.map((time) =>
    row13({ time, from: PARTY_B, to: 'network' }, PARTY_B),
  );
  await publish(database.pool, objects, {
    party: PARTY_B,
    ...APRIL_TO_JUNE,
    header: HEADER_13,
    rows: later,
  });
  return first;
}

function check(deep = false): Promise<VerifyReport> {
  return verify({ repository: new VerifyStore(warehouse), objects }, signal, {
    deep,
  });
}

function checkIn(store: ObjectStore): Promise<VerifyReport> {
  const repository = new VerifyStore(warehouse);
  return verify({ repository, objects: store }, signal);
}

/** A store that lists its objects and refuses to read any, as an archive does. */
function refusingStore(): ObjectStore {
  return withOverrides(objects, {
    read: (key) =>
      Promise.reject(
        new PermanentError(`Cannot read ${key}: 403 InvalidObjectState`, {
          code: 'OBJECT_STORE_ARCHIVED',
        }),
      ),
  });
}

async function distrusted(): Promise<number> {
  const { rows } = await database.pool.query(
    'select from mirror.segments where quarantine_reason is not null',
  );
  return rows.length;
}

/** Publishes one segment for each of so many parties. */
async function publishMany(count: number): Promise<readonly string[]> {
  const keys: string[] = [];
  for (let number = 1; number <= count; number += 1) {
    const party = number.toString(16).padStart(2, '0').repeat(32);
    const time = '2023-04-30 23:59:59.5+00';
    const { key } = await publish(database.pool, objects, {
      party,
      ...APRIL_TO_JUNE,
      header: HEADER_13,
      rows: [row13({ time, from: party, to: 'network' }, party)],
    });
    keys.push(key);
  }
  return keys;
}

function pathOf(key: string): string {
  return fileURLToPath(new URL(key, `${objects.url}/`));
}

describe('verify', () => {
  test('finds everything in order after a load, also with --deep', async () => {
    await publishBoth();
    const loaded = await loadAll(deps, signal);
    const report = await check(true);

    expect(loaded).toMatchObject({
      verdict: 'complete',
      parties: 2,
      segments: 2,
      rows: 6n,
    });
    expect(report.problems).toEqual([]);
    expect(report).toMatchObject({
      verdict: 'complete',
      checked: { segments: 2, loadedSegments: 2, warehouseRows: 6n },
    });
  });

  test('reports parties never fetched and segments never loaded without failing', async () => {
    await publishBoth();
    await addParties(database.pool, ['network', '0f'.repeat(32)]);
    const report = await check(true);
    expect(report).toMatchObject({
      verdict: 'complete',
      neverFetched: { parties: 1, segmentsNotLoaded: 2n },
    });
  });

  test('proves new segments and a share of the others each nightly run, the oldest proofs first', async () => {
    await publishBoth();
    await loadAll(deps, signal);
    const nightly = (): Promise<VerifyReport> =>
      verify({ repository: new VerifyStore(warehouse), objects }, signal, {
        scope: 'nightly',
      });
    const first = await nightly();
    expect(first).toMatchObject({
      verdict: 'complete',
      scope: 'nightly',
      checked: { segments: 2, warehouseRows: 6n },
    });
    expect(first.provenSince).not.toBeNull();
    // Nothing is new: one in twenty-eight of two is one, and the next night the other.
    const proofs =
      'select segment_id from mirror.segment_proofs order by proven_at limit 1';
    const oldest = (await database.pool.query(proofs)).rows;
    expect((await nightly()).checked.segments).toBe(1);
    expect((await database.pool.query(proofs)).rows).not.toEqual(oldest);
    expect((await check()).checked.segments).toBe(2);
  });

  test('does not count a segment as proven that did not agree', async () => {
    const { key, segmentId } = await publishBoth();
    await loadAll(deps, signal);
    await unlink(pathOf(key));
    const nightly = (): Promise<VerifyReport> =>
      verify({ repository: new VerifyStore(warehouse), objects }, signal, {
        scope: 'nightly',
      });
    expect(await nightly()).toMatchObject({
      verdict: 'failed',
      provenSince: null,
    });
    const { rows } = await database.pool.query(
      'select segment_id::int as id from mirror.segment_proofs',
    );
    expect(rows.map(({ id }: { id: number }) => id)).not.toContain(
      Number(segmentId),
    );
    // It is looked at again each night, until it agrees.
    expect(await nightly()).toMatchObject({
      verdict: 'failed',
      problems: [{ code: 'OBJECT_MISSING' }],
    });
  });

  test('verify distrusts nothing that the store refuses, and names the refusal', async () => {
    await publishBoth();
    await loadAll(deps, signal);
    const report = await checkIn(refusingStore());
    expect(report.verdict).toBe('failed');
    expect(report.problems.map(({ code }) => code)).toEqual([
      'OBJECT_STORE_ARCHIVED',
      'OBJECT_STORE_ARCHIVED',
    ]);
    expect(await distrusted()).toBe(0);
  });

  test('verify ends when the store refuses one object after the other', async () => {
    await publishMany(25);
    await expect(checkIn(refusingStore())).rejects.toMatchObject({
      code: 'OBJECT_STORE_ARCHIVED',
    });
    expect(await distrusted()).toBe(0);
  });

  test('verify distrusts nothing when the store lacks every object', async () => {
    const keys = await publishMany(3);
    for (const key of keys) await unlink(pathOf(key));
    const report = await check();
    expect(report.verdict).toBe('failed');
    expect(report.problems.map(({ code }) => code)).toContain(
      'OBJECTS_MISSING',
    );
    expect(await distrusted()).toBe(0);
  });

  test('verify distrusts every lost object when a person accepts the loss', async () => {
    const keys = await publishMany(24);
    for (const key of keys.slice(0, 12)) await unlink(pathOf(key));
    const [refused] = (await check()).problems.filter(
      ({ code }) => code === 'OBJECTS_MISSING',
    );
    expect(refused?.message).toContain('verify --accept-lost');
    expect(await distrusted()).toBe(0);

    const repository = new VerifyStore(warehouse);
    const options = { isLossAccepted: true };
    const accepted = await verify({ repository, objects }, signal, options);
    expect(accepted.verdict).toBe('failed');
    expect(await distrusted()).toBe(12);
  });

  test('verify distrusts a few missing objects among many', async () => {
    const keys = await publishMany(5);
    for (const key of keys.slice(0, 2)) await unlink(pathOf(key));
    expect((await check()).problemCount).toBe(2);
    expect(await distrusted()).toBe(2);
  });

  test('load quarantines nothing that the store refuses', async () => {
    await publishBoth();
    const refused = await loadAll(
      { ...deps, objects: refusingStore() },
      signal,
    );
    expect(refused).toMatchObject({
      verdict: 'incomplete',
      quarantinedCount: 0,
      failedCount: 2,
    });
    expect(refused.failed[0]?.code).toBe('OBJECT_STORE_ARCHIVED');
    expect(await distrusted()).toBe(0);
    expect(await loadAll(deps, signal)).toMatchObject({ verdict: 'complete' });
  });

  test('load quarantines nothing when the store lacks every object, and loads all once they are back', async () => {
    const keys = await publishMany(4);
    const aside = (key: string): string => `${pathOf(key)}.aside`;
    for (const key of keys) await rename(pathOf(key), aside(key));
    await expect(loadAll(deps, signal)).rejects.toMatchObject({
      code: 'OBJECTS_MISSING',
    });
    expect(await distrusted()).toBe(0);
    for (const key of keys) await rename(aside(key), pathOf(key));
    expect(await loadAll(deps, signal)).toMatchObject({
      verdict: 'complete',
      segments: 4,
    });
  });

  test('load quarantines no segment when many of the objects are missing, and loads the others', async () => {
    const keys = await publishMany(24);
    for (const key of keys.slice(0, 12)) await unlink(pathOf(key));
    await expect(loadAll(deps, signal)).rejects.toMatchObject({
      code: 'OBJECTS_MISSING',
    });
    expect(await distrusted()).toBe(0);
    expect((await check()).checked.loadedSegments).toBe(12);
  });

  test('load quarantines the segments of a few missing objects', async () => {
    const keys = await publishMany(5);
    for (const key of keys.slice(0, 2)) await unlink(pathOf(key));
    expect(await loadAll(deps, signal)).toMatchObject({
      verdict: 'incomplete',
      segments: 3,
      quarantinedCount: 2,
    });
    expect(await distrusted()).toBe(2);
  });

  test('names objects of another mirror, and a store that the database knows nothing of', async () => {
    await publishBoth();
    await emptyLedgers(database.pool);
    const foreign = await check();
    expect(foreign.verdict).toBe('failed');
    expect(foreign.problems.map(({ code }) => code)).toEqual([
      'OBJECT_FOREIGN',
      'OBJECT_FOREIGN',
    ]);
    await setWarehouseId(database.pool, WAREHOUSE_ID);
    const forgotten = await check();
    expect(forgotten).toMatchObject({
      verdict: 'failed',
      objectsNotRecorded: 2,
      problems: [{ code: 'OBJECTS_NOT_RECORDED' }],
    });
    await setWarehouseId(database.pool, crypto.randomUUID());
  });

  test.each([
    [
      'an object that is gone',
      'OBJECT_MISSING',
      (key: string) => unlink(pathOf(key)),
    ],
    [
      'an object cut short',
      'OBJECT_CORRUPT',
      (key: string) => writeFile(pathOf(key), 'short'),
    ],
    [
      'a manifest that is gone',
      'OBJECT_MISSING',
      (key: string) => unlink(pathOf(`${key}.manifest.json`)),
    ],
    [
      'a changed manifest',
      'MANIFEST_INVALID',
      (key: string) => writeFile(pathOf(`${key}.manifest.json`), '{}'),
    ],
  ])('catches %s', async (_name, code, damage) => {
    const { key } = await publishBoth();
    await loadAll(deps, signal);
    await damage(key);

    const report = await check();

    expect(report.verdict).toBe('failed');
    expect(report.problems).toMatchObject([{ code, subject: key }]);
  });

  test('catches frames of a manifest that are not those that were published', async () => {
    const { key, segmentId } = await publishBoth();
    await loadAll(deps, signal);
    const path = pathOf(`${key}.manifest.json`);
    const manifest = decodeManifest(await readFile(path), key);
    const { from, to, objectBytes: bytes } = manifest;
    const frames = [{ offset: 0n, bytes, earliest: from, latest: to }];
    const { evidence } = segmentRow({ ...manifest, frames }, {}) as {
      readonly evidence: object;
    };
    await database.pool.query(
      'update mirror.segments set evidence = $2 where segment_id = $1',
      [segmentId, evidence],
    );
    await writeFile(path, encodeManifest({ ...manifest, frames }));
    expect((await check()).verdict).toBe('complete');

    const hidden = [{ offset: 0n, bytes, earliest: from, latest: from }];
    await writeFile(path, encodeManifest({ ...manifest, frames: hidden }));
    const report = await check();
    expect(report.verdict).toBe('failed');
    expect(report.problems).toMatchObject([
      { code: 'MANIFEST_DIFFERS', subject: key },
    ]);
  });

  test.each([
    [
      'a lost row',
      'ROWS_DIFFER',
      false,
      'delete from mirror.ledger_entries where ctid in (select ctid from mirror.ledger_entries_2023_04 limit 1)',
    ],
    [
      'a changed amount',
      'VALUES_DIFFER',
      true,
      'update mirror.ledger_entries_2023_05 set quantity = quantity + 1',
    ],
    [
      'a changed extra value',
      'VALUES_DIFFER',
      true,
      `update mirror.ledger_entries set extra = '{"note": ""}' where extra is not null`,
    ],
    [
      'rows of nowhere',
      'ROWS_WITHOUT_SEGMENT',
      false,
      "insert into mirror.ledger_entries_2023_05 (party_id, vega_time, quantity, transfer_type, asset_id, segment_id) values ('x', '2023-05-02Z', 1, 'X', 'y', 0)",
    ],
  ])('catches %s in the warehouse', async (_name, code, deep, damage) => {
    await publishBoth();
    await loadAll(deps, signal);
    await database.pool.query(damage);

    const report = await check(deep);

    expect(report.verdict).toBe('failed');
    expect(new Set(report.problems.map((problem) => problem.code))).toEqual(
      new Set([code]),
    );
  });
});

describe('rebuildIfEmpty', () => {
  const SEGMENTS = `select party_id, asset_id, from_time, to_time, open, object_key, rows, bytes, sha256, object_bytes,
    object_sha256, digest, columns, status from mirror.segments order by object_key`;

  test('brings a lost database back from the objects alone', async () => {
    const day = {
      party: PARTY_A,
      from: '2023-05-01T00:00:00Z',
      to: '2023-05-02T00:00:00Z',
    };
    await publish(database.pool, objects, {
      ...day,
      open: true,
      rows: [row12({ time: '2023-05-01 01:00:00+00' })],
    });
    await publish(database.pool, objects, {
      ...day,
      to: '2023-05-03T00:00:00Z',
      rows: [row12({ time: '2023-05-01 02:00:00+00' })],
    });
    await publish(database.pool, objects, {
      ...day,
      party: PARTY_B,
      header: HEADER_13,
      rows: [row13({ time: '2023-05-01 01:00:00+00', from: PARTY_B }, PARTY_B)],
    });
    const before = (await database.pool.query(SEGMENTS)).rows;
    await emptyLedgers(database.pool);
    const rebuilding = { db: warehouse.db, objects };

    const rebuilt = await rebuildIfEmpty(rebuilding, signal);
    const loaded = await loadAll(deps, signal);

    expect(rebuilt).toEqual({
      current: 2,
      superseded: 1,
      ranges: 0,
      problemCount: 0,
      problems: [],
    });
    expect((await database.pool.query(SEGMENTS)).rows).toEqual(before);
    expect(loaded).toMatchObject({ verdict: 'complete', rows: 2n });
    expect(await check(true)).toMatchObject({
      verdict: 'complete',
      problems: [],
    });
    const identity = await database.pool.query(
      'select warehouse_id, publication_seq > 2 as later from mirror.identity',
    );
    expect(identity.rows).toEqual([
      { warehouse_id: WAREHOUSE_ID, later: true },
    ]);
    expect(await rebuildIfEmpty(rebuilding, signal)).toBeUndefined();
  });

  test('goes on where it was killed, and before anything else is asked', async () => {
    await publishBoth();
    const third = { party: 'c'.repeat(64), ...APRIL_TO_JUNE };
    await publish(database.pool, objects, {
      ...third,
      rows: [row12({ time: '2023-05-01 01:00:00+00' })],
    });
    const before = (await database.pool.query(SEGMENTS)).rows;
    expect(before.length).toBe(3);
    await emptyLedgers(database.pool);
    const { db } = warehouse;
    // The first party is recorded when a manifest of the second is read, the second when
    // one of the third is.
    const read: ObjectStore['read'] = (key, ...how) => {
      if (key.includes(third.party)) throw new Error('killed');
      return objects.read(key, ...how);
    };
    const dying = { db, objects: withOverrides(objects, { read }) };
    await expect(rebuildIfEmpty(dying, signal)).rejects.toThrow('killed');
    expect((await database.pool.query(SEGMENTS)).rows.length).toBe(1);
    await adoptUnknownManifests({ db, objects }, signal);
    expect((await database.pool.query(SEGMENTS)).rows).toEqual(before);
    expect((await readIdentity(db)).isRebuilding).toBe(false);
    expect(await rebuildIfEmpty({ db, objects }, signal)).toBeUndefined();
  });

  test('takes over no object that is older than what is known of its range', async () => {
    const day = {
      party: PARTY_A,
      from: '2023-05-01T00:00:00Z',
      to: '2023-05-02T00:00:00Z',
    };
    const rows = [row12({ time: '2023-05-01 01:00:00+00' })];
    const { segmentId } = await publish(database.pool, objects, {
      ...day,
      open: true,
      rows,
    });
    await publish(database.pool, objects, {
      ...day,
      to: '2023-05-03T00:00:00Z',
      rows,
    });
    const before = (await database.pool.query(SEGMENTS)).rows;
    await database.pool.query(
      'delete from mirror.segments where segment_id = $1',
      [segmentId],
    );
    await setWarehouseId(database.pool, WAREHOUSE_ID);
    const found = await adoptUnknownManifests(
      { db: warehouse.db, objects },
      signal,
    );
    expect(found).toMatchObject({ current: 0, superseded: 1, problemCount: 0 });
    expect((await database.pool.query(SEGMENTS)).rows).toEqual(before);
  });

  test('takes over nothing of another mirror', async () => {
    await publishBoth();
    await emptyLedgers(database.pool);
    await setWarehouseId(database.pool, '00000000-0000-4000-8000-000000000009');
    const catalog = { db: warehouse.db, objects };
    expect(await adoptUnknownManifests(catalog, signal)).toBeUndefined();
  });

  test('goes on past a manifest that it cannot use', async () => {
    const { key } = await publishBoth();
    await emptyLedgers(database.pool);
    await unlink(pathOf(key));

    const rebuilt = await rebuildIfEmpty({ db: warehouse.db, objects }, signal);

    expect(rebuilt).toMatchObject({
      current: 1,
      problemCount: 1,
      problems: [{ key: `${key}.manifest.json` }],
    });
  });

  test('a rebuild ends when the store refuses a manifest', async () => {
    await publishBoth();
    await emptyLedgers(database.pool);
    const refusing = { db: warehouse.db, objects: refusingStore() };
    await expect(rebuildIfEmpty(refusing, signal)).rejects.toMatchObject({
      code: 'OBJECT_STORE_ARCHIVED',
    });
    const whole = { db: warehouse.db, objects };
    expect(await rebuildIfEmpty(whole, signal)).toMatchObject({ current: 2 });
  });
});
