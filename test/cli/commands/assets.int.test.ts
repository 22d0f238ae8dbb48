/** ASSETS_FILE through the real binary: tables, files and the warehouse. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { commandWorld } from './command-world.ts';

const { database, home, sandbox } = await commandWorld();
const [asset = '', other = ''] = sandbox.truth.assetIds();
const DECIMALS = 5;
const SUMS =
  'select asset_id, sum(quantity) as quantity, in_units(sum(quantity), asset_id) as whole ' +
  'from entries group by asset_id order by asset_id';

async function assetsFile(assets: readonly object[]): Promise<string> {
  const path = join(home.dir, 'assets.json');
  await writeFile(path, JSON.stringify(assets));
  return path;
}

/** The sums of the smallest units, by asset, from a CSV. */
function sumsOf(csv: string): Readonly<Record<string, string>> {
  const rows = csv.trimEnd().split('\n').slice(1);
  return Object.fromEntries(rows.map((row) => row.split(',').slice(0, 2)));
}

test('amounts are readable in tables and in the warehouse, and never change in files', async () => {
  const plain = await home.run(['query', SUMS, '--format', 'csv']);
  const settings = {
    ASSETS_FILE: await assetsFile([
      { id: asset, symbol: 'TST', decimals: DECIMALS },
    ]),
  };
  const csv = await home.run(['query', SUMS, '--format', 'csv'], settings);
  const sums = sumsOf(csv.stdout);
  expect(sums).toEqual(sumsOf(plain.stdout));
  const digits = sums[asset] ?? '';
  const point = digits.length - DECIMALS;
  const whole = `${BigInt(digits.slice(0, point)).toLocaleString('en-US')}.${digits.slice(point)}`;
  const shown = whole.replace(/\.?0+$/, '');
  expect(csv.stdout).toContain(
    `${asset},${digits},${shown.replaceAll(',', '')}\n`,
  );

  const table = (await home.run(['query', SUMS], settings)).stdout.split('\n');
  expect(table[0]).toContain('quantity (smallest unit if no symbol)');
  const lineOf = (id: string): string =>
    table.find((line) => line.startsWith(id)) ?? '';
  expect(lineOf(asset)).toContain(` ${shown} TST `);
  expect(lineOf(other)).toContain(
    ` ${BigInt(sums[other] ?? '').toLocaleString('en-US')}`,
  );
  const before = (await home.run(['query', SUMS])).stdout.split('\n', 1)[0];
  expect(before).toMatch(/ quantity \(smallest unit\) /);

  expect((await home.run(['migrate'], settings)).code).toBe(0);
  const { rows } = await database.pool.query<object>(
    `select asset_symbol, trim_scale(sum(amount))::text as amount, sum(quantity)::text as quantity
       from mirror.bi_entries where asset_id = $1 group by 1`,
    [asset],
  );
  expect(rows).toEqual([
    {
      asset_symbol: 'TST',
      amount: shown.replaceAll(',', ''),
      quantity: digits,
    },
  ]);
});

test('a command does not start with a file that it cannot use', async () => {
  const ASSETS_FILE = await assetsFile([
    { id: asset, symbol: 'TST', decimals: 6 },
    { id: asset, symbol: 'TST', decimals: 7 },
  ]);
  const ended = await home.run(['status'], { ASSETS_FILE });
  expect([ended.code, ended.stdout]).toEqual([1, '']);
  expect(ended.stderr).toMatch(
    /^ledger-mirror: ASSETS_FILE: cannot use ".*assets\.json": entry 2 has the id [0-9a-f]{64} of an earlier one; remove one of them\n$/,
  );
});
