/** A lost database, rebuilt from the manifests; and one that went back to a backup. */
import { randomUUID } from 'node:crypto';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { exportParty } from '../../../src/exports/export-party.ts';
import { createLog } from '../../../src/logging/log.ts';
import { collectGarbage } from '../../../src/exports/publishing/garbage-collection.ts';
import {
  adoptUnknownManifests,
  rebuildIfEmpty,
  type RebuildResult,
} from '../../../src/warehouse/store/rebuild.ts';
import { publishRanges } from '../../../src/warehouse/store/range-records.ts';
import { ExportArchiveStore } from '../../../src/exports/store/export-archive.ts';
import { RetryableError } from '../../../src/errors/errors.ts';
import { manifestKey } from '../../../src/ledger/object-keys.ts';
import { RANGES_KEY } from '../../../src/ledger/range-record.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import type { ReleaseName } from '../../../src/sandbox/options.ts';
import { signal, World } from '../../exports/export-world.ts';
import { clockAt } from '../../exports/ledger-double.ts';
import {
  expectTruth,
  type Night,
  openNights,
} from '../../exports/sandbox-nightly.ts';
import { testSource } from '../../source/test-source.ts';
import { freshDatabase, openFreshDatabase } from '../../support/database.ts';
import {
  coveredRanges,
  currentSegments,
  publicationSeq,
} from '../../support/mirror-state.ts';
import {
  emptyLedgers,
  setPublicationSeq,
} from '../../support/mirror-arrange.ts';

const database = await freshDatabase({ isMigrated: true });
const DAY_MS = 86_400_000;

interface Scene extends Night {
  /** Every party's export. @returns what the source was asked meanwhile */
  night(): Promise<readonly string[]>;
  /** A second mirror: an empty database, and a copy of the store. */
  rebuilt(options?: { readonly keepsRanges: boolean }): Promise<{
    world: World;
    result: RebuildResult | undefined;
    night: Scene['night'];
  }>;
}

async function openScene(release: ReleaseName): Promise<Scene> {
  await setPublicationSeq(database.pool, 0n);
  const night = await openNights(database, {
    release,
    parties: 6,
    whaleEntries: 800,
  });
  const { sandbox, world } = night;
  const asked: string[] = [];
  sandbox.faults.add(({ route, queryText }) => {
    if (route === 'export') asked.push(queryText);
    return undefined;
  });
  const { ledger } = testSource(new URL(sandbox.url));
  async function nightOf(of: World): Promise<readonly string[]> {
    asked.length = 0;
    const clock = clockAt(sandbox.truth.head().time);
    for (const { id } of sandbox.truth.parties()) {
      const request = { partyId: id, runId: randomUUID(), clock };
      const outcome = await exportParty(
        request,
        of.deps({ source: ledger, segmentBytesMax: 2 ** 20 }),
        signal,
      );
      expect(outcome.verdict).toBe('complete');
    }
    return [...asked];
  }
  return {
    ...night,
    night: () => nightOf(world),
    rebuilt: async ({ keepsRanges } = { keepsRanges: true }) => {
      if (keepsRanges) await keepRanges(world);
      const empty = await openFreshDatabase({ isMigrated: true });
      const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-lost-'));
      await cp(join(world.folder, 'objects'), join(folder, 'objects'), {
        recursive: true,
      });
      const other = new World(empty.url, empty.pool, folder);
      onTestFinished(async () => {
        await other[Symbol.asyncDispose]();
        await empty[Symbol.asyncDispose]();
        await rm(folder, { recursive: true, force: true });
      });
      await using warehouse = openWarehouse({
        url: empty.url,
        onIdleError: () => undefined,
      });
      const result = await rebuildIfEmpty(
        { db: warehouse.db, objects: other.objects },
        signal,
      );
      return { world: other, result, night: () => nightOf(other) };
    },
  };
}

/** As the end of a nightly run does. */
async function keepRanges({ objects }: World): Promise<void> {
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  await publishRanges({ warehouse, objects }, signal);
}

async function keysOf({ pool }: World): Promise<string[]> {
  return (await currentSegments(pool))
    .map(({ objectKey }) => objectKey)
    .toSorted();
}

/** When each published range was compared with the source last. */
async function checksOf({ pool }: World): Promise<Record<string, unknown>[]> {
  const { rows } = await pool.query<Record<string, unknown>>(
    `select object_key as key, checked_at::text as at from mirror.coverage
       join mirror.segments using (segment_id) order by 1`,
  );
  return rows;
}

/** Of each party, from when until when it is closed without a gap. */
async function closedOf({ pool }: World): Promise<unknown[]> {
  const { rows } = await pool.query(
    `select party_id, range_agg(tstzrange(from_time, to_time))::text as closed from mirror.coverage
     where not open group by 1 order by 1`,
  );
  return rows;
}

/** All that is known of closed ranges, but when and by whom. */
async function coverageOf({ pool }: World): Promise<unknown[]> {
  const { rows } = await pool.query(
    `select c.party_id, c.asset_id, c.from_time, c.to_time, c.sides, c.tail, c.epoch, c.open,
       c.run_id, object_key, s.open as is_growing
     from mirror.coverage c left join mirror.segments s using (segment_id)
     where not c.open or c.segment_id is not null order by c.party_id, c.from_time`,
  );
  return rows;
}

describe.each(['0.71.4', '0.73'] as const)('release %s', (release) => {
  test('a lost database comes back with the same segments, ranges and tails, and its next night asks what the lost one would have asked', async () => {
    const scene = await openScene(release);
    // The third night finds the present as it was: what was open is closed as it stands.
    for (const passed of [0, 3_600_000, 600_000, DAY_MS]) {
      scene.sandbox.advance(passed);
      await scene.night();
    }
    expect(
      (await coveredRanges(scene.world.pool)).filter(({ isEmpty }) => isEmpty),
    ).not.toEqual([]);
    const lost = await scene.rebuilt();
    expect(lost.result).toMatchObject({ problemCount: 0 });
    expect(await keysOf(lost.world)).toEqual(await keysOf(scene.world));
    expect(await coverageOf(lost.world)).toEqual(await coverageOf(scene.world));

    scene.sandbox.advance(7_200_000);
    const asked = await scene.night();
    expect(await lost.night()).toEqual(asked);
    expect(await closedOf(lost.world)).toEqual(await closedOf(scene.world));
    await expectTruth({ ...scene, world: lost.world });
  });
});

test('a rebuilt ledger is audited when the lost one would have been', async () => {
  const scene = await openScene('0.73');
  const { world, sandbox } = scene;
  for (let night = 0; night < 3; night += 1) {
    sandbox.advance(DAY_MS);
    await scene.night();
  }
  // The network's clock stands long before the wall's, which says when ranges are checked.
  await world.pool.query(
    `update mirror.coverage set checked_at = '2020-01-01Z' where not open`,
  );
  for (const { id } of sandbox.truth.parties()) {
    const { verdict } = await scene.run(id, undefined, { auditShare: 0.5 });
    expect(verdict).toBe('complete');
  }
  const checks = await checksOf(world);
  const audited = checks.filter(({ at }) => !String(at).startsWith('2020'));
  expect(audited).not.toEqual([]);
  const lost = await scene.rebuilt();
  const rebuilt = await checksOf(lost.world);
  expect(rebuilt).toEqual(expect.arrayContaining(audited));
});

/** @returns what puts it back as it is now */
async function backUp({ pool }: World): Promise<() => Promise<void>> {
  const tables = ['exports', 'segments', 'coverage'];
  await pool.query(
    'drop schema if exists backup cascade; create schema backup',
  );
  for (const name of tables)
    await pool.query(`create table backup.${name} as table mirror.${name}`);
  const seq = await publicationSeq(pool);
  return async () => {
    await emptyLedgers(pool);
    for (const name of tables)
      await pool.query(
        `insert into mirror.${name} overriding system value table backup.${name}`,
      );
    await setPublicationSeq(pool, seq);
  };
}

test('a database that went back to a backup takes over what was published since, before anything is removed', async () => {
  const scene = await openScene('0.73');
  const { world, sandbox } = scene;
  const goOn = async (): Promise<void> => {
    sandbox.advance(DAY_MS);
    await scene.night();
  };
  await scene.night();
  await goOn();
  const restore = await backUp(world);
  await goOn();
  await goOn();
  const before = await keysOf(world);
  await restore();
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const deps = { db: warehouse.db, objects: world.objects };
  expect(await adoptUnknownManifests(deps, signal)).toMatchObject({
    problemCount: 0,
  });
  expect(await keysOf(world)).toEqual(before);
  const archive = new ExportArchiveStore(warehouse.db);
  await collectGarbage(
    {
      objects: world.objects,
      archive,
      log: createLog('silent'),
      graceMs: -1000,
    },
    signal,
  );
  expect(await world.keys()).toEqual(expect.arrayContaining(before));
  expect(await adoptUnknownManifests(deps, signal)).toBeUndefined();
  sandbox.advance(7_200_000);
  await scene.night();
  await expectTruth(scene);
});

test('an order of a party learns first what was published of it after the backup, and nothing of others', async () => {
  const scene = await openScene('0.73');
  const { world, sandbox } = scene;
  await scene.night();
  const restore = await backUp(world);
  sandbox.advance(DAY_MS);
  await scene.night();
  const published = await currentSegments(world.pool);
  const [party = ''] = published.map(({ partyId }) => partyId);
  const before = await (async () => {
    await restore();
    return currentSegments(world.pool);
  })();
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const deps = { db: warehouse.db, objects: world.objects };
  expect(await adoptUnknownManifests(deps, signal, party)).toMatchObject({
    problemCount: 0,
  });
  const now = await currentSegments(world.pool);
  const ofParty = (isMeant: boolean, segments: typeof now): string[] =>
    segments
      .flatMap((one) =>
        (one.partyId === party) === isMeant ? one.objectKey : [],
      )
      .toSorted();
  expect(ofParty(true, now)).toEqual(ofParty(true, published));
  expect(ofParty(false, now)).toEqual(ofParty(false, before));
  expect(ofParty(false, now)).not.toEqual(ofParty(false, published));
  // What is learned of the others later is not taken for older than what was published
  // meanwhile.
  await scene.run(party);
  await adoptUnknownManifests(deps, signal);
  expect(ofParty(false, await currentSegments(world.pool))).toEqual(
    ofParty(false, published),
  );
  await scene.night();
  await expectTruth(scene);
});

test('a database that went back to a backup learns the ranges without entries that it had forgotten', async () => {
  const scene = await openScene('0.73');
  const { world, sandbox } = scene;
  await scene.night();
  const restore = await backUp(world);
  for (const passed of [600_000, DAY_MS]) {
    sandbox.advance(passed);
    await scene.night();
  }
  await keepRanges(world);
  const before = await coverageOf(world);
  await restore();
  await using warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  const deps = { db: warehouse.db, objects: world.objects };
  expect(await adoptUnknownManifests(deps, signal)).toMatchObject({
    ranges: expect.toSatisfy((count: number) => count > 0),
    problemCount: 0,
  });
  expect(await coverageOf(world)).toEqual(before);
  expect(await adoptUnknownManifests(deps, signal)).toBeUndefined();
});

test('a damaged record of ranges is a problem of the rebuild, which takes over every manifest', async () => {
  const scene = await openScene('0.73');
  await scene.night();
  const { objects } = scene.world;
  await objects.replaceBytes(RANGES_KEY, Buffer.from('no archive'), signal);
  const lost = await scene.rebuilt({ keepsRanges: false });
  expect(lost.result).toMatchObject({
    ranges: 0,
    problems: [{ key: RANGES_KEY }],
  });
  expect(await keysOf(lost.world)).toEqual(await keysOf(scene.world));
});

test('a store that refuses one manifest ends the rebuild after the parties before it, and the next one goes on', async () => {
  const scene = await openScene('0.73');
  await scene.night();
  const keys = await keysOf(scene.world);
  const partyOf = (key = ''): string => key.split('/')[1] ?? '';
  const refused =
    keys.findLast((key) => partyOf(key) === partyOf(keys.at(-1))) ?? '';
  const empty = await openFreshDatabase({ isMigrated: true });
  onTestFinished(() => empty[Symbol.asyncDispose]());
  await using warehouse = openWarehouse({
    url: empty.url,
    onIdleError: () => undefined,
  });
  const { objects } = scene.world;
  const away = new Proxy(objects, {
    get(store, name: keyof typeof objects) {
      const member = store[name];
      if (typeof member !== 'function') return member;
      return (...args: readonly unknown[]) => {
        if (args[0] === manifestKey(refused)) {
          throw new RetryableError('Cannot read: the store is busy', {
            code: 'S3_BUSY',
          });
        }
        return Reflect.apply(member, store, args);
      };
    },
  });
  const rebuilding = rebuildIfEmpty(
    { db: warehouse.db, objects: away },
    signal,
  );
  await expect(rebuilding).rejects.toMatchObject({ code: 'S3_BUSY' });
  const known = (await currentSegments(empty.pool)).map(
    ({ objectKey }) => objectKey,
  );
  expect(known.map(partyOf)).toContain(partyOf(keys[0]));
  expect(known.map(partyOf)).not.toContain(partyOf(refused));

  await rebuildIfEmpty({ db: warehouse.db, objects }, signal);
  const whole = await currentSegments(empty.pool);
  expect(whole.map(({ objectKey }) => objectKey).toSorted()).toEqual(keys);
});
