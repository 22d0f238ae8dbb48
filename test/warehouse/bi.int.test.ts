/**
 * What BI tools and dbt read: exact types, one balance an account, and months whose rows
 * changed.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { describedRelations } from '../../scripts/dictionary.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { migrate } from '../../src/postgres/migrate.ts';
import { freshDatabase } from '../support/database.ts';
import { HEADER_13 } from '../ledger/csv.ts';
import { PARTY_A, PARTY_B, publish, row13 } from './published.ts';

const database = await freshDatabase();
const warehouse = openWarehouse({
  url: database.url,
  onIdleError: () => undefined,
});
await migrate(warehouse.db);
afterAll(() => warehouse[Symbol.asyncDispose]());
const folder = await mkdtemp('/tmp/ledger-mirror-bi-');
afterAll(() => rm(folder, { recursive: true, force: true }));
const objects = openFileStore(folder);

/**
 * One block, in no order: A goes 100, 90, 70, 65, 45, 35; B from 0 to 35; of C something
 * between is not mirrored.
 */
const PARTY_C = 'cc'.repeat(32);
const LAST_BLOCK = [
  { to: PARTY_B, quantity: '20', balances: ['70', '30'] as const },
  { to: PARTY_B, quantity: '5', balances: ['65', '35'] as const },
  { to: PARTY_C, quantity: '20', balances: ['45', '50'] as const },
  { to: PARTY_B, quantity: '10', balances: ['90', '10'] as const },
  { to: PARTY_C, quantity: '10', balances: ['35', '10'] as const },
];

async function ask<Row extends object = Record<string, unknown>>(
  sql: string,
): Promise<readonly Row[]> {
  return (await database.pool.query<Row>(sql)).rows;
}

async function load(): Promise<void> {
  await loadAll(
    { repository: new LoadStore(warehouse), objects },
    new AbortController().signal,
  );
}

async function versions(): Promise<Record<string, string>> {
  const rows = await ask<{ month: string; version: string }>(
    `select to_char(month, 'YYYY-MM') as month, version from mirror.changed_months order by 1`,
  );
  return Object.fromEntries(rows.map(({ month, version }) => [month, version]));
}

beforeAll(async () => {
  const may = {
    from: PARTY_A,
    to: PARTY_B,
    type: 'TRANSFER',
    time: '2023-05-02 10:00:00+00',
  };
  const june = { ...may, time: '2023-06-02 10:00:00+00', quantity: '9' };
  await publish(database.pool, objects, {
    party: PARTY_A,
    from: '2023-05-01T00:00:00Z',
    to: '2023-07-01T00:00:00Z',
    header: HEADER_13,
    rows: [
      row13({ ...may, quantity: '9007199254740993' }, PARTY_A),
      row13({ ...may, quantity: `1${'0'.repeat(38)}` }, PARTY_A),
      row13(june, PARTY_A),
      ...LAST_BLOCK.map((entry) =>
        row13({ ...june, time: '2023-06-03 10:00:00+00', ...entry }, PARTY_A),
      ),
    ],
  });
  await load();
});

describe('mirror.bi_entries', () => {
  test('has types that drivers keep to the last digit, and text where a decimal(38,0) ends', async () => {
    const types = await ask(
      `select distinct format_type(atttypid, atttypmod) as type from pg_attribute
        where attrelid = 'mirror.bi_entries'::regclass and attname in ('quantity', 'account_from_balance')`,
    );
    expect(types).toEqual([{ type: 'numeric(38,0)' }]);
    const rows = await ask(
      `select quantity::text, quantity_text from mirror.bi_entries where month = '2023-05-01' order by 2`,
    );
    expect(rows).toEqual(
      expect.arrayContaining([
        { quantity: '9007199254740993', quantity_text: '9007199254740993' },
        { quantity: null, quantity_text: `1${'0'.repeat(38)}` },
      ]),
    );
  });

  test('tells amounts in whole units once an asset is configured', async () => {
    const amount = `select trim_scale(amount)::text as amount, asset_symbol from mirror.bi_entries where quantity = 9`;
    expect(await ask(amount)).toEqual([{ amount: null, asset_symbol: null }]);
    await ask(
      `insert into mirror.assets select distinct asset_id, 'USDT', 2 from mirror.ledger_entries where asset_id is not null`,
    );
    expect(await ask(amount)).toEqual([
      { amount: '0.09', asset_symbol: 'USDT' },
    ]);
  });
});

describe('mirror.latest_balances', () => {
  test('has one row an account, and follows the entries of a block from balance to balance', async () => {
    const rows = await ask(
      `select party_id, is_resolved, balance::text, lowest::text, highest::text, trim_scale(amount)::text as amount
        from mirror.latest_balances order by party_id`,
    );
    expect(rows).toEqual([
      {
        party_id: PARTY_A,
        is_resolved: true,
        balance: '35',
        lowest: '35',
        highest: '90',
        amount: '0.35',
      },
      {
        party_id: PARTY_B,
        is_resolved: true,
        balance: '35',
        lowest: '10',
        highest: '35',
        amount: '0.35',
      },
      {
        party_id: PARTY_C,
        is_resolved: false,
        balance: null,
        lowest: '10',
        highest: '50',
        amount: null,
      },
    ]);
  });
});

describe('mirror.changed_months', () => {
  test('changes the version of the months that a late load touches, and of no other', async () => {
    const before = await versions();
    expect(Object.keys(before)).toEqual(['2023-05', '2023-06']);
    await load();
    expect(await versions()).toEqual(before);
    const late = {
      from: PARTY_B,
      to: PARTY_A,
      type: 'TRANSFER',
      time: '2023-05-20 10:00:00+00',
      quantity: '1',
    };
    await publish(database.pool, objects, {
      party: PARTY_B,
      from: '2023-05-01T00:00:00Z',
      to: '2023-05-31T00:00:00Z',
      header: HEADER_13,
      rows: [row13(late, PARTY_B)],
    });
    await load();
    const after = await versions();
    expect(after['2023-05']).not.toBe(before['2023-05']);
    expect(after['2023-06']).toBe(before['2023-06']);
  });
});

describe('comments in the database', () => {
  test('are those of the data dictionary, on every relation and column that it describes', async () => {
    const page = await readFile(
      new URL('../../docs/data-dictionary.md', import.meta.url),
      'utf8',
    );
    for (const { relation, text, columns } of describedRelations(page)) {
      const found = await ask<{ name: string | null; text: string }>(
        `select a.attname as name, d.description as text from pg_description d
          left join pg_attribute a on a.attrelid = d.objoid and a.attnum = d.objsubid and d.objsubid > 0
          where d.objoid = '${relation}'::regclass and d.classoid = 'pg_class'::regclass`,
      );
      const told = Object.fromEntries(
        found.map((row) => [row.name ?? '', row.text]),
      );
      expect({ relation, told }, "run 'npm run schema'").toEqual({
        relation,
        told: { '': text, ...columns },
      });
    }
  });
});
