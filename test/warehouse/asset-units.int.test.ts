/**
 * Amounts in whole units, from ASSETS_FILE: the warehouse and the lake show the same
 * figures as a sum that is made without either, to the last digit.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { buildLake } from '../../src/lake/build/build.ts';
import { openLake } from '../../src/lake/query/lake.ts';
import { LakeStore } from '../../src/lake/store/lake-store.ts';
import type { Asset } from '../../src/ledger/assets.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import { keepAssets } from '../../src/warehouse/store/asset-units.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { HEADER_13 } from '../ledger/csv.ts';
import { loadWorld } from './load-world.ts';
import { PARTY_A, PARTY_B, publish, row13 } from './published.ts';

const world = await loadWorld();
const { database, warehouse } = world;
const signal = new AbortController().signal;

const [ETH, DAI, WHOLE, UNKNOWN] = ['e1', 'd1', 'f1', 'a9'].map((digits) =>
  digits.repeat(32),
) as [string, string, string, string];
const ASSETS: readonly Asset[] = [
  { id: ETH, symbol: 'ETH', decimals: 18 },
  { id: DAI, symbol: "D'AI", decimals: 38 },
  { id: WHOLE, symbol: 'LOT', decimals: 0 },
];
const QUANTITIES: Readonly<Record<string, readonly string[]>> = {
  [ETH]: ['123456789012345678901234567', '1', '90000000000000000', '0'],
  [DAI]: ['1', '99999999999999999999999999999999999999', `1${'0'.repeat(45)}`],
  [WHOLE]: ['1000', '9007199254740993'],
  [UNKNOWN]: ['77'],
};

/** The sum of each asset, written with its point by means of this file alone. */
const WANTED = Object.entries(QUANTITIES)
  .map(([asset, quantities]) => {
    const sum = quantities.reduce((all, one) => all + BigInt(one), 0n);
    const decimals = ASSETS.find(({ id }) => id === asset)?.decimals;
    if (decimals === undefined) return { asset, paid: null, owed: null };
    const scale = 10n ** BigInt(decimals);
    const fraction = (sum % scale).toString().padStart(decimals, '0');
    const paid = `${sum / scale}.${decimals === 0 ? '' : fraction}`.replace(
      /\.?0*$/,
      '',
    );
    const plain = decimals === 0 ? String(sum) : paid;
    return { asset, paid: plain, owed: `-${plain}` };
  })
  .toSorted((a, b) => (a.asset < b.asset ? -1 : 1));

async function ask(sql: string): Promise<readonly object[]> {
  return (await database.pool.query<Record<string, unknown>>(sql)).rows;
}

beforeEach(async () => {
  await database.pool.query('delete from mirror.configured_assets');
});

async function fill(): Promise<void> {
  const entry = {
    time: '2023-05-02 10:00:00+00',
    from: PARTY_A,
    to: PARTY_B,
    type: 'MAKER_FEE_PAY',
  };
  const rows = Object.entries(QUANTITIES).flatMap(([asset, quantities]) =>
    quantities.map((quantity) => {
      // The receiver's account begins with nothing, so each entry leaves its own amount.
      const balances = ['0', quantity] as const;
      return row13({ ...entry, asset, quantity, balances }, PARTY_A);
    }),
  );
  await publish(database.pool, world.objects, {
    party: PARTY_A,
    from: '2023-05-01T00:00:00Z',
    to: '2023-06-01T00:00:00Z',
    header: HEADER_13,
    rows,
  });
  await loadAll(
    { repository: new LoadStore(warehouse), objects: world.objects },
    signal,
  );
}

test('warehouse and lake show sums in whole units, as an independent sum has them', async () => {
  await fill();
  await keepAssets(warehouse.db, ASSETS);
  const sums = await ask(
    `select asset_id as asset, mirror.in_units(sum(quantity), asset_id)::text as paid,
            mirror.in_units(-sum(quantity), asset_id)::text as owed
       from mirror.entries group by asset_id order by asset_id collate "C"`,
  );
  expect(sums).toEqual(WANTED);
  const views = await ask(
    `select asset_id as asset, trim_scale(sum(amount))::text as paid, trim_scale(-sum(amount))::text as owed
       from mirror.bi_entries group by asset_id order by asset_id collate "C"`,
  );
  expect(views).toEqual(WANTED);

  const scratchDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-units-'));
  onTestFinished(() => rm(scratchDir, { recursive: true, force: true }));
  const deps = {
    repository: new LakeStore(warehouse.pool),
    objects: world.objects,
    scratchDir,
    retentionMs: 7 * 86_400_000,
  };
  await buildLake(deps, signal);
  await using lake = await openLake({ ...deps, assets: ASSETS }, signal);
  const reader = await lake.connection.runAndReadAll(
    `select asset_id as asset, in_units(exact_sum(quantity, quantity_text), asset_id) as paid,
            in_units(-exact_sum(quantity, quantity_text), asset_id) as owed
       from entries group by asset_id order by asset_id`,
  );
  expect(reader.getRowObjects()).toEqual(WANTED);
  // The macro's own column of this name must not be taken for that of the query.
  const each = await lake.connection.runAndReadAll(
    'select count(in_units(quantity, asset_id)) as converted from entries',
  );
  expect(each.getRowObjects()).toEqual([{ converted: 8n }]);
  const known = await lake.connection.runAndReadAll(
    'select asset_id as id, symbol, decimals from assets order by symbol',
  );
  expect(known.getRowObjects()).toEqual(
    ASSETS.toSorted((a, b) => (a.symbol < b.symbol ? -1 : 1)),
  );
});

test.each([
  ['flows_daily', 'amount', 'true'],
  ['fees_daily', 'amount', `party_id = '${PARTY_A}'`],
  ['payments_monthly', 'amount', `payee = '${PARTY_B}'`],
  ['market_fees_monthly', 'amount', 'true'],
  ['counterparties', 'sent_amount', `party_id = '${PARTY_A}'`],
  ['counterparties', 'received_amount', `party_id = '${PARTY_B}'`],
  ['statement_lines', 'amount', `party_id = '${PARTY_B}'`],
  ['statement_lines', 'balance_amount', `party_id = '${PARTY_B}'`],
])(
  'mirror.%s has %s in whole units, as an independent sum has it',
  async (view, column, condition) => {
    await fill();
    await keepAssets(warehouse.db, ASSETS);
    const sums = await ask(
      `select asset_id as asset, trim_scale(sum(${column}))::text as paid, trim_scale(-sum(${column}))::text as owed
         from mirror.${view} where ${condition} group by asset_id order by asset_id collate "C"`,
    );
    expect(sums).toEqual(WANTED);
    const symbols = await ask(
      `select asset_symbol as symbol from mirror.${view} group by 1 order by asset_symbol collate "C"`,
    );
    expect(symbols).toEqual([
      { symbol: "D'AI" },
      { symbol: 'ETH' },
      { symbol: 'LOT' },
      { symbol: null },
    ]);
  },
);

test('mirror.holders_monthly has what is held in whole units', async () => {
  await fill();
  await keepAssets(warehouse.db, ASSETS);
  // The entries of a block have no order, so the highest of the balances counts.
  expect(
    await ask(
      `select asset_symbol as symbol, trim_scale(amount)::text as held
         from mirror.holders_monthly order by asset_symbol collate "C"`,
    ),
  ).toEqual([
    { symbol: "D'AI", held: '10000000' },
    { symbol: 'ETH', held: '123456789.012345678901234567' },
    { symbol: 'LOT', held: '9007199254740993' },
    { symbol: null, held: null },
  ]);
});

test('a query that reads no whole units does not join the assets, and still uses the index', async () => {
  const plan = async (columns: string): Promise<string> =>
    JSON.stringify(
      await ask(
        `explain select ${columns} from mirror.statement_lines
          where party_id = '${PARTY_A}' and vega_time >= '2023-05-01'`,
      ),
    );
  expect(await plan('vega_time, change')).not.toContain('configured_assets');
  const joined = await plan('*');
  expect(joined).toContain('configured_assets');
  expect(joined).toMatch(/account_from_party_id = /);
  expect(joined).toMatch(/account_to_party_id = /);
});

test('an amount of the views keeps the last of its 38 decimals', async () => {
  await fill();
  await keepAssets(warehouse.db, ASSETS);
  expect(
    await ask(
      `select trim_scale(amount)::text as amount from mirror.bi_entries where asset_id = '${DAI}' order by amount`,
    ),
  ).toEqual([
    { amount: `0.${'0'.repeat(37)}1` },
    { amount: `0.${'9'.repeat(38)}` },
    { amount: '10000000' },
  ]);
});

test('the file replaces what an earlier file had, and leaves what an owner inserted', async () => {
  const own = '01'.repeat(32);
  await ask(
    `insert into mirror.assets values ('${own}', 'OWN', 3), ('${ETH}', 'old', 2)`,
  );
  await keepAssets(warehouse.db, ASSETS);
  const names = `select symbol, decimals from mirror.assets order by symbol collate "C"`;
  expect(await ask(names)).toEqual([
    { symbol: "D'AI", decimals: 38 },
    { symbol: 'ETH', decimals: 18 },
    { symbol: 'LOT', decimals: 0 },
    { symbol: 'OWN', decimals: 3 },
  ]);
  const version = `select sum(xmin::text::bigint) as version from mirror.configured_assets`;
  const before = await ask(version);
  await keepAssets(warehouse.db, ASSETS.toReversed());
  expect(await ask(version)).toEqual(before);
  await keepAssets(warehouse.db, [{ id: DAI, symbol: 'DAI', decimals: 5 }]);
  expect(await ask(names)).toEqual([
    { symbol: 'DAI', decimals: 5 },
    { symbol: 'OWN', decimals: 3 },
  ]);
});

test('processes that start together keep the same assets', async () => {
  const many = Array.from({ length: 200 }, (_, index) => ({
    id: index.toString(16).padStart(64, '0'),
    symbol: `A${index}`,
    decimals: index % 39,
  }));
  await Promise.all(
    [many, many.toReversed(), many].map((assets) =>
      keepAssets(warehouse.db, assets),
    ),
  );
  expect(
    await ask(
      'select count(*)::int as assets, sum(decimals)::int as decimals from mirror.assets',
    ),
  ).toEqual([
    {
      assets: 200,
      decimals: many.reduce((sum, { decimals }) => sum + decimals, 0),
    },
  ]);
});
