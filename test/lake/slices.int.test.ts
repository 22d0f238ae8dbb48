/** A month read from its objects is the month that the warehouse sends, whatever the objects hold. */
import { mkdtemp, readdir, rm, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { buildLake, type LakeDeps } from '../../src/lake/build.ts';
import { openLake } from '../../src/lake/lake.ts';
import type { SliceLimits } from '../../src/lake/ports.ts';
import { SUMMARY_TABLES } from '../../src/lake/summaries.ts';
import { verifyLake } from '../../src/lake/verify-lake.ts';
import { ACCOUNT_TYPES, WORDS_BY_TEXT } from '../../src/ledger/encodings.ts';
import { loadAll } from '../../src/load/load-all.ts';
import type { ObjectStore } from '../../src/objects/object-store.ts';
import { LakeStore } from '../../src/lake/store/lake-store.ts';
import { LoadStore } from '../../src/load/store/load-store.ts';
import { loadWorld } from '../load/load-world.ts';
import {
  ASSET,
  HEADER_12,
  HEADER_13,
  PARTY_A,
  PARTY_B,
  type Publication,
  publish,
  row12,
  row13,
} from '../load/published.ts';
import { openDoubleStore, S3Double } from '../support/s3-double.ts';

const PARTY_C = 'cc'.repeat(32);
const signal = new AbortController().signal;
const world = await loadWorld();
const { database, warehouse } = world;
const FROM_OBJECTS: SliceLimits = { rowsMin: 1n, readsMax: 1000n, bytesMax: 2n ** 30n };
const FROM_WAREHOUSE: SliceLimits = { ...FROM_OBJECTS, rowsMin: 2n ** 60n };

let objects: ObjectStore;
let deps: LakeDeps;

beforeEach(async () => {
  ({ objects } = world);
  const scratchDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-lake-'));
  onTestFinished(() => rm(scratchDir, { recursive: true, force: true }));
  deps = { books: new LakeStore(warehouse.pool), objects, scratchDir };
});

const put = (segment: Publication): ReturnType<typeof publish> => publish(database.pool, objects, segment);

async function load(): Promise<void> {
  const { quarantined } = await loadAll({ books: new LoadStore(warehouse), objects }, signal);
  expect(quarantined).toEqual([]);
}

interface Built {
  /** Every row of every table, as text. */
  readonly rows: Readonly<Record<string, readonly string[]>>;
  /** Where the files of each month came from, in order. */
  readonly sources: Readonly<Record<string, readonly string[]>>;
}

/** A lake of its own: whatever was built before is taken away. */
async function build(sliceLimits: SliceLimits): Promise<Built> {
  for await (const { key } of objects.list('lake/', signal)) await objects.remove(key, signal);
  const sources: Record<string, string[]> = {};
  await buildLake({ ...deps, sliceLimits }, signal, ({ partition, source }) => {
    const month = /month=(.*)$/.exec(partition)?.[1];
    if (month !== undefined) (sources[month] ??= []).push(source);
  });
  expect(await verifyLake(deps, true, signal)).toMatchObject({ problems: [] });
  const rows: Record<string, readonly string[]> = {};
  await using lake = await openLake(deps, signal);
  for (const table of ['ledger_entries', ...SUMMARY_TABLES]) {
    const result = await lake.connection.runAndReadAll(
      `select cast(t as varchar) as line from ${table} t order by 1`,
    );
    rows[table] = result.getRows().map(([line]) => String(line));
  }
  for (const found of Object.values(sources)) found.sort();
  return { rows, sources };
}

async function sameBothWays(): Promise<Built> {
  const sent = await build(FROM_WAREHOUSE);
  const read = await build(FROM_OBJECTS);
  expect(read.rows).toEqual(sent.rows);
  expect(Object.values(sent.sources).flat()).not.toContain('object');
  return read;
}

/** Each text once in its column, in rows that are otherwise alike. */
function rowsOf(header: string, row: string, texts: Readonly<Record<string, readonly string[]>>): string[] {
  const names = header.split(',');
  return Object.entries(texts).flatMap(([column, values]) =>
    values.map((value) => row.split(',').with(names.indexOf(column), value).join(',')),
  );
}

const ID_TEXTS = [
  ...WORDS_BY_TEXT.keys(),
  ...[...WORDS_BY_TEXT.values()].filter((word) => !word.startsWith('#')),
  ...[...WORDS_BY_TEXT.keys()].map((word) => `\\x${word}`),
  'NETWORK',
  `\\x${'AB'.repeat(32)}`,
  `\\x${'ab'.repeat(31)}`,
  'abcd',
  `"${'ef'.repeat(32)}"`,
];
const OPTIONAL_ID_TEXTS = [...ID_TEXTS, '', '\\x', '""'];
const ACCOUNT_TEXTS = [
  ...[...ACCOUNT_TYPES.keys(), 8, 19, 123456789].map(String),
  '007',
  ...[...ACCOUNT_TYPES.values()].flatMap((name) => [name, `ACCOUNT_TYPE_${name}`, `"${name}"`]),
  'ACCOUNT_TYPE_ACCOUNT_TYPE_X',
  'A_NEW_TYPE_9',
  '',
  '""',
];
const AMOUNT_TEXTS = [
  '0',
  '-0',
  '+0',
  '000',
  '+5',
  '-5',
  '007',
  '-007',
  '"12"',
  ...['', '-', '+'].flatMap((sign) => [38, 39, 40, 60, 1000].map((digits) => sign + '9'.repeat(digits))),
  ...['1', '-1'].map((first) => first + '0'.repeat(38)),
  `+${'0'.repeat(60)}5`,
  `-${'0'.repeat(20)}${'8'.repeat(70)}`,
];
const TIME_TEXTS = [
  '2023-05-31 23:59:59.999999+00',
  '2023-06-01 00:00:00+00',
  '2023-06-01 00:00:00.000001+00',
  '2023-06-01T00:00:00Z',
  '2023-06-01 03:00:00+05:30',
  '2023-05-31 23:00:00-02',
  '2023-05-31 20:00:00.5-0530',
  '2023-06-01 05:30:14.999999+05:30:15',
  '2023-05-10 01:02:03.123456000Z',
  '2023-05-10',
  '"2023-05-10 10:00:00.1+00"',
];
const TYPE_TEXTS = [
  'DEPOSIT',
  'TRANSFER_TYPE_DEPOSIT',
  '7',
  '007',
  'TRANSFER_TYPE_TRANSFER_TYPE_X',
  '"WITHDRAW"',
];
const TEXTS = {
  vega_time: TIME_TEXTS,
  quantity: AMOUNT_TEXTS,
  transfer_type: TYPE_TEXTS,
  asset_id: ID_TEXTS,
  account_from_market_id: OPTIONAL_ID_TEXTS,
  account_from_party_id: OPTIONAL_ID_TEXTS,
  account_from_account_type: ACCOUNT_TEXTS,
  account_from_balance: [...AMOUNT_TEXTS, ''],
  account_to_market_id: OPTIONAL_ID_TEXTS,
  account_to_party_id: OPTIONAL_ID_TEXTS,
  account_to_account_type: ACCOUNT_TEXTS,
  account_to_balance: [...AMOUNT_TEXTS, '', '""'],
};
const RANGE = { from: '2023-05-01T00:00:00Z', to: '2023-07-01T00:00:00Z' };
const TIME = '2023-05-07 10:00:00.000001+00';

it('every text of every column means the same in SQL', async () => {
  const old = rowsOf(HEADER_12, row12({ time: TIME }), TEXTS);
  const both = rowsOf(HEADER_13, row13({ time: TIME, to: PARTY_B }, PARTY_B), {
    ...TEXTS,
    effect: AMOUNT_TEXTS,
  });
  await put({ party: PARTY_A, ...RANGE, rows: old });
  await put({ party: PARTY_B, ...RANGE, header: HEADER_13, rows: both, compression: 'gzip' });
  await put({ party: PARTY_C, ...RANGE, rows: old, compression: 'none', lineEnd: '\r\n', open: true });
  await load();

  const { rows, sources } = await sameBothWays();

  expect(rows['ledger_entries']).toHaveLength(2 * old.length + both.length);
  const three = ['object', 'object', 'object'];
  expect(sources).toEqual({ '2023-05': three, '2023-06': three });
});

it('entries are counted by the same rule, at every instant and asset', async () => {
  const times = [
    '2023-05-01',
    '2023-05-09 23:59:59.999999+00',
    '2023-05-10',
    '2023-05-19 12:00:00+00',
    '2023-05-20',
  ];
  const others = ['dd'.repeat(32), ASSET];
  const rowsFor = (party: string): string[] =>
    times.flatMap((time) =>
      [PARTY_A, PARTY_B, PARTY_C, 'network', ''].flatMap((from) =>
        others.map((asset) => row13({ time, from, to: party }, party).replace(ASSET, asset)),
      ),
    );
  const header = HEADER_13;
  const [start, middle, later, end] = [
    '2023-04-30T00:00:00Z',
    '2023-05-10T00:00:00Z',
    '2023-05-20T00:00:00Z',
    '2023-06-02T00:00:00Z',
  ];
  await put({ party: PARTY_A, from: start, to: end, header, rows: rowsFor(PARTY_A) });
  // What is superseded before it is loaded, and after: a stale one counts until it is unloaded.
  await put({ party: PARTY_B, from: start, to: later, header, rows: rowsFor(PARTY_B) });
  await put({ party: PARTY_B, from: start, to: middle, header, rows: rowsFor(PARTY_B).slice(0, 20) });
  await put({ party: PARTY_C, from: middle, to: later, header, rows: [] });
  const ofOneAsset = await put({
    party: PARTY_C,
    from: later,
    to: end,
    header,
    rows: rowsFor(PARTY_C).slice(40),
  });
  await load();
  await database.pool.query('update mirror.segments set asset_id = $1 where segment_id = $2', [
    ASSET,
    ofOneAsset.segmentId,
  ]);
  await put({
    party: PARTY_B,
    from: '2023-05-09T00:00:00Z',
    to: later,
    header,
    rows: rowsFor(PARTY_B).slice(10),
  });

  const { rows, sources } = await sameBothWays();

  expect(sources).toEqual({ '2023-05': ['object', 'object', 'object'] });
  const counted = rows['ledger_entries']?.map((line) => line.includes("'is_counted': true"));
  expect(new Set(counted)).toEqual(new Set([true, false]));
});

it('rows of other segments and lists come from the warehouse, into the same month', async () => {
  await put({ party: PARTY_A, ...RANGE, rows: [1, 2, 3].map(() => row12({ time: TIME })) });
  const noted = [`${row12({ time: TIME, to: PARTY_B })},"a, ""note"""`];
  await put({ party: PARTY_B, ...RANGE, header: `${HEADER_12},note`, rows: noted });
  await load();

  const { sources } = await sameBothWays();

  expect(sources).toEqual({ '2023-05': ['object', 'warehouse'] });
});

it('an object is read for months that hold enough of it', async () => {
  const rows = [...[1, 2, 3, 4].map(() => row12({ time: TIME })), row12({ time: '2023-06-02' })];
  await put({ party: PARTY_A, ...RANGE, rows });
  await load();

  expect((await build({ ...FROM_OBJECTS, readsMax: 4n })).sources).toEqual({
    '2023-05': ['object'],
    '2023-06': ['warehouse'],
  });
  expect((await build({ ...FROM_OBJECTS, rowsMin: 5n })).sources['2023-05']).toEqual(['warehouse']);
  expect((await build({ ...FROM_OBJECTS, bytesMax: 10n })).sources['2023-05']).toEqual(['warehouse']);
});

it.each([
  ['of ids in upper case', [row13({ time: TIME, from: PARTY_A.toUpperCase() }, PARTY_A)]],
  ['with line ends of two kinds', [`${row13({ time: TIME }, PARTY_A)}\r`, row13({ time: TIME }, PARTY_A)]],
  ['of times that only the loader reads', [row13({ time: '2023-05-07t10:00:00z' }, PARTY_A)]],
])('an object %s is left to the warehouse', async (_, rows) => {
  await put({ party: PARTY_A, ...RANGE, header: HEADER_13, rows });
  await put({
    party: PARTY_B,
    ...RANGE,
    header: HEADER_13,
    rows: [row13({ time: TIME, to: PARTY_B }, PARTY_B)],
  });
  await load();

  const { sources } = await sameBothWays();

  expect(sources['2023-05']).toContain('warehouse');
  expect(sources['2023-05']).toContain('object');
});

it.each([
  ['lost', (path: string) => rm(path)],
  ['cut short', (path: string) => truncate(path, 20)],
])('an object that was %s since its load is left to the warehouse', async (_, damage) => {
  const { key } = await put({ party: PARTY_A, ...RANGE, rows: [row12({ time: TIME })] });
  await put({ party: PARTY_B, ...RANGE, rows: [row12({ time: TIME, from: PARTY_B })] });
  await load();
  await damage(fileURLToPath(`${objects.url}/${key}`));

  const { rows, sources } = await sameBothWays();

  expect(rows['ledger_entries']).toHaveLength(2);
  expect(sources['2023-05']).toContain('warehouse');
});

it('objects in S3 are copied for as long as they are read', async () => {
  await using double = await S3Double.start();
  objects = openDoubleStore(double.endpoint, join(deps.scratchDir, 'spool'));
  onTestFinished(() => objects[Symbol.asyncDispose]());
  deps = { ...deps, objects };
  await put({ party: PARTY_A, ...RANGE, rows: [row12({ time: TIME }), row12({ time: '2023-06-03' })] });
  await load();

  const { sources } = await sameBothWays();

  expect(sources).toEqual({ '2023-05': ['object'], '2023-06': ['object'] });
  expect((await readdir(deps.scratchDir)).filter((name) => name.startsWith('lake-'))).toEqual([]);
  expect(await readdir(join(deps.scratchDir, 'spool'))).toEqual([]);
});
