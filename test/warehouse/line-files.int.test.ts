/** The lines that a load leaves for the lake: the same rows as those of the database. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type BuiltLake, buildLake } from '../../src/lake/build/build.ts';
import { openLake } from '../../src/lake/query/lake.ts';
import { LakeStore } from '../../src/lake/store/lake-store.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { LineFiles } from '../../src/warehouse/line-files.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { HEADER_13 } from '../ledger/csv.ts';
import { loadWorld } from './load-world.ts';
import { PARTY_A, PARTY_B, publish, row12, row13 } from './published.ts';

const world = await loadWorld();
const { database, warehouse } = world;
const signal = new AbortController().signal;

const MAY = { from: '2023-05-01T00:00:00Z', to: '2023-06-01T00:00:00Z' };
const JUNE = { from: '2023-06-01T00:00:00Z', to: '2023-07-01T00:00:00Z' };
const YEAR = { from: '2022-01-01T00:00:00Z', to: '2023-01-01T00:00:00Z' };

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-lines-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Publishes ledgers of both families of releases, with values that few have. */
async function publishLedgers(): Promise<void> {
  const ledger = (
    party: string,
    range: typeof MAY,
    rows: readonly string[],
    header?: string,
  ) =>
    publish(database.pool, world.objects, {
      party,
      ...range,
      rows,
      ...(header !== undefined && { header }),
    });
  const same = row12({ time: '2023-05-31 23:59:59.999999+00' });
  await ledger(PARTY_A, MAY, [
    same,
    same,
    row12({ time: '2023-05-01 02:00:00+02' }),
  ]);
  await ledger(PARTY_A, YEAR, [
    row12({ time: '2022-01-01 00:00:00+00', quantity: '0' }),
    row12({ time: '2022-12-31 23:59:59.1+00', quantity: `1${'0'.repeat(60)}` }),
  ]);
  const entry = { time: '2023-05-02 10:00:00+00', from: PARTY_A, to: PARTY_B };
  await ledger(PARTY_B, MAY, [row13(entry, PARTY_B)], HEADER_13);
}

async function load(lineFiles?: LineFiles): Promise<void> {
  const loaded = await loadAll(
    { repository: new LoadStore(warehouse), objects: world.objects, lineFiles },
    signal,
  );
  expect(loaded.verdict).toBe('complete');
}

/** Builds a lake of its own, and reads all of its entries. */
async function build(
  loadedLines?: LineFiles,
): Promise<{ built: BuiltLake; entries: unknown }> {
  const deps = {
    repository: new LakeStore(warehouse.pool),
    objects: openFileStore(await newFolder()),
    scratchDir: await newFolder(),
    retentionMs: 7 * 86_400_000,
    loadedLines,
  };
  const built = await buildLake(deps, signal);
  await using lake = await openLake(deps, signal);
  const reader = await lake.connection.runAndReadAll(
    'select * from entries order by all',
  );
  return { built, entries: reader.getRowObjectsJson() };
}

describe('a lake of the lines that a load left', () => {
  beforeEach(async () => {
    await publishLedgers();
  });

  test('has the entries that a lake of the rows of the database has', async () => {
    await using lines = await LineFiles.open(await newFolder());
    await load(lines);
    const ofLines = await build(lines);
    const ofDatabase = await build();
    expect(ofLines.entries).toEqual(ofDatabase.entries);
    expect(ofLines.built.rows).toBe(ofDatabase.built.rows);
    expect(ofLines.built.rowsSent).toBe(0n);
    expect(ofDatabase.built.rowsSent).toBe(6n);
  });

  test('is the same if the lines are in several parts', async () => {
    await using lines = new LineFiles(await newFolder(), 2 ** 20, 1);
    await load(lines);
    const { built, entries } = await build(lines);
    expect(built.rowsSent).toBe(0n);
    expect(entries).toEqual((await build()).entries);
  });

  test.each([
    ['a column that this version does not know', PARTY_B, '"a	b \\ c"'],
    ['a party whose id has a backslash', 'own\\party', undefined],
  ])('takes from the database a segment with %s', async (_, party, note) => {
    const entry = { time: '2023-06-02 10:00:00+00', from: party, to: PARTY_A };
    const row = row13(entry, party);
    await publish(database.pool, world.objects, {
      party,
      ...JUNE,
      header: note === undefined ? HEADER_13 : `${HEADER_13},note`,
      rows: [note === undefined ? row : `${row},${note}`],
    });
    await using lines = await LineFiles.open(await newFolder());
    await load(lines);
    const { built, entries } = await build(lines);
    expect(built.rowsSent).toBe(1n);
    expect(entries).toEqual((await build()).entries);
  });

  test('takes from the database what an earlier load has loaded', async () => {
    await load();
    await using lines = await LineFiles.open(await newFolder());
    await load(lines);
    expect((await build(lines)).built.rowsSent).toBe(6n);
  });

  test.each([
    ['there is no room for', (folder: string) => new LineFiles(folder, 10)],
    [
      'cannot be written',
      (folder: string) => new LineFiles(join(folder, 'missing'), 2 ** 20),
    ],
  ])('takes from the database the lines that %s', async (_, open) => {
    await using lines = open(await newFolder());
    await load(lines);
    expect((await build(lines)).built.rowsSent).toBe(6n);
  });

  test('takes from the database a segment whose first attempt was rolled back', async () => {
    const store = new LoadStore(warehouse);
    let failures = 1;
    const once = new Proxy(store, {
      get: (target, name) => {
        if (name !== 'replace') {
          const value: unknown = Reflect.get(target, name);
          return typeof value === 'function' ? value.bind(target) : value;
        }
        const replace: LoadStore['replace'] = (party, plan, write, stop) =>
          store.replace(
            party,
            plan,
            async (segment, sink) => {
              const sums = await write(segment, sink);
              failures -= 1;
              if (failures === 0) throw new Error('the connection broke');
              return sums;
            },
            stop,
          );
        return replace;
      },
    });
    await using lines = await LineFiles.open(await newFolder());
    const first = await loadAll(
      { repository: once, objects: world.objects, lineFiles: lines },
      signal,
    );
    expect(first.failedCount).toBe(1);
    await load(lines);
    const { built, entries } = await build(lines);
    expect(built.rowsSent).toBeGreaterThan(0n);
    expect(entries).toEqual((await build()).entries);
  });
});
