/**
 * The lake on a real S3 server: builds that die before each of their writes, and two at
 * once.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { buildLake, type LakeDeps } from '../../src/lake/build/build.ts';
import { openLake } from '../../src/lake/query/lake.ts';
import type { DecidedCommit } from '../../src/lake/store/lake-store.ts';
import { LakeStore } from '../../src/lake/store/lake-store.ts';
import { verifyLake } from '../../src/lake/verify/verify-lake.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import {
  entry,
  type SegmentRows,
  WarehouseDouble,
} from '../lake/entries-double.ts';
import { openFreshDatabase } from '../support/database.ts';
import { openStoreOn, type StoreUnderTest } from './store-under-test.ts';

const signal = new AbortController().signal;
const WRITES = new Set(['publishFile', 'publishBytes', 'putIfAbsent']);
const PARTY = 'aa'.repeat(32);

/** Its entries are drawn; what it decides stands in a real database. */
class Warehouse extends WarehouseDouble {
  readonly #register: LakeStore;

  constructor(pool: Pool) {
    super();
    this.#register = new LakeStore(pool);
  }

  override decidedCommits(store: string): Promise<readonly DecidedCommit[]> {
    return this.#register.decidedCommits(store);
  }

  override decideCommit(
    ...given: Parameters<LakeStore['decideCommit']>
  ): Promise<boolean> {
    return this.#register.decideCommit(...given);
  }

  override forgetContent(
    ...given: Parameters<LakeStore['forgetContent']>
  ): Promise<void> {
    return this.#register.forgetContent(...given);
  }
}

function segments(count: number): readonly SegmentRows[] {
  const rows = [entry({ party_id: PARTY, account_from_party_id: PARTY })];
  return Array.from({ length: count }, (_, index) => ({
    segmentId: BigInt(index + 1),
    rows,
  }));
}

/** As a process that dies there: neither this write nor any later one arrives. */
function dyingBefore(objects: ObjectStore, nth: number): ObjectStore {
  let writes = 0;
  return new Proxy(objects, {
    get: (store, name) => {
      const own: unknown = Reflect.get(store, name);
      if (typeof own !== 'function') return own;
      return (...given: readonly unknown[]): unknown => {
        if (WRITES.has(String(name))) writes += 1;
        if (writes >= nth && (WRITES.has(String(name)) || name === 'remove'))
          throw new Error('died');
        return Reflect.apply(own, store, given);
      };
    },
  });
}

interface World extends AsyncDisposable {
  readonly warehouse: Warehouse;
  readonly prefix: string;
  readonly deps: LakeDeps;
}

async function openWorld(running: StoreUnderTest): Promise<World> {
  await using stack = new AsyncDisposableStack();
  const database = stack.use(await openFreshDatabase({ isMigrated: true }));
  const scratchDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-store-lake-'));
  onTestFinished(() => rm(scratchDir, { recursive: true, force: true }));
  const warehouse = new Warehouse(database.pool);
  const prefix = randomUUID();
  const objects = stack.use(openStoreOn(running(), { prefix }));
  const deps = {
    repository: warehouse,
    objects,
    scratchDir,
    retentionMs: 7 * 86_400_000,
  };
  const owned = stack.move();
  return {
    warehouse,
    prefix,
    deps,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function rowsOf(deps: LakeDeps): Promise<number> {
  await using lake = await openLake({ ...deps, sql: 'ledger_entries' }, signal);
  const result = await lake.connection.runAndReadAll(
    'select count(*) from ledger_entries',
  );
  return Number(result.getRowsJson()[0]?.[0]);
}

/** @param everyNth of the writes of a build, before which one dies */
export function describeLake(running: StoreUnderTest, everyNth: number): void {
  describe('the lake', () => {
    test('the lake is the one before or after a build, whichever write the build dies at', async () => {
      await using world = await openWorld(running);
      const { warehouse, deps } = world;
      warehouse.segments = segments(1);
      await buildLake(deps, signal);
      let count = 1;
      for (let nth = 1, hasDied = true; hasDied; nth += everyNth) {
        count += 1;
        warehouse.segments = segments(count);
        hasDied = await buildLake(
          { ...deps, objects: dyingBefore(deps.objects, nth) },
          signal,
        ).then(
          () => false,
          (error: Error) => error.message === 'died',
        );
        expect([count - 1, count]).toContain(await rowsOf(deps));
        await buildLake(deps, signal);
      }
      expect(await rowsOf(deps)).toBe(count);
      expect(count).toBeGreaterThan(3);
      expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
        problems: [],
        segmentsBehind: 0,
      });
    });

    test('the lake keeps every row where two builders without a lock race', async () => {
      await using world = await openWorld(running);
      const { warehouse, deps, prefix } = world;
      warehouse.segments = segments(1);
      await buildLake(deps, signal);
      warehouse.segments = segments(3);
      await using other = openStoreOn(running(), { prefix });
      const ends = await Promise.allSettled([
        buildLake(deps, signal),
        buildLake({ ...deps, objects: other }, signal),
      ]);
      const codes = ends.flatMap((end) =>
        end.status === 'rejected' ? [end.reason as { code: string }] : [],
      );
      expect(codes.map(({ code }) => code)).toEqual(
        codes.map(() => 'LAKE_SECOND_WRITER'),
      );
      expect(codes.length).toBeLessThan(2);
      await buildLake(deps, signal);
      expect(await rowsOf(deps)).toBe(3);
      expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
        problems: [],
        segmentsBehind: 0,
      });
    });
  });
}
