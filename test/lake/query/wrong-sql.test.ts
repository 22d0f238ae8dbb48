/** What a mistyped name and a sum that overflows are answered with. */
// cspell:ignore entris bloc quantty suum tpye partys partyid selekt
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { buildLake } from '../../../src/lake/build/build.ts';
import { type Lake, openLake } from '../../../src/lake/query/lake.ts';
import { runQuery } from '../../../src/lake/query/query.ts';
import { openFileStore } from '../../../src/storage/file-store.ts';
import { entry, WarehouseDouble } from '../entries-double.ts';

const { signal } = new AbortController();
let lake: Lake;

beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-lake-'));
  const warehouse = new WarehouseDouble();
  const most = '9'.repeat(38);
  warehouse.segments = [
    {
      segmentId: 1n,
      rows: [entry({ quantity: most }), entry({ quantity: most })],
    },
  ];
  const deps = {
    repository: warehouse,
    objects: openFileStore(join(folder, 'objects')),
    scratchDir: join(folder, 'scratch'),
    retentionMs: 1_000_000,
  };
  await buildLake(deps, signal);
  lake = await openLake(deps, signal);
  return async () => {
    await lake[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  };
});

async function answer(sql: string): Promise<string> {
  const output = new PassThrough();
  onTestFinished(() => void output.destroy());
  await runQuery(lake, sql, { format: 'csv' }, output.resume(), signal);
  return 'no error';
}

describe('a mistyped name in SQL', () => {
  test.each([
    ['select * from partys', 'there is no table partys; did you mean parties?'],
    [
      'select * from mirror.ledger_entry',
      'there is no table ledger_entry; did you mean ledger_entries?',
    ],
    [
      'select partyid from ledger_entries',
      'there is no column partyid; did you mean party_id?',
    ],
    [
      'select e.quantty from entries e',
      'there is no column quantty in e; did you mean quantity?',
    ],
    [
      'select transfer_tpye, count(*) from entries group by 1',
      'there is no column transfer_tpye; did you mean transfer_type?',
    ],
    [
      'select suum(quantity) from entries',
      'there is no function suum; did you mean sum?',
    ],
  ])(
    '%s names the one that was meant, and shows the place',
    async (sql, why) => {
      await expect(answer(sql)).rejects.toThrow(
        new RegExp(
          `^SQL: ${why.replaceAll(/[?.]/g, String.raw`\$&`)}\n\nLINE 1: .*\n *\\^`,
        ),
      );
    },
  );

  test.each([
    ['select as_o from mirror.monthly_balances', 'as_of'],
    ['with p as (select party from parties) select * from p', 'party_id'],
    ['select month, sum(entris) from monthly_activity group by 1', 'entries'],
    // `paid` of another table is nearer, and `side` is as near.
    ['select said from ledger_entries', 'side'],
    ['select pay_id from parties p, checkpoints', 'party_id'],
    ['select first_seen_a from "checkpoints"', 'first_seen_at'],
    // None of its own is near, so the suggestion names the table that has it.
    ['select vega_tim from parties', 'vega_time of entries'],
  ])(
    '%s is answered with a column of its own table first',
    async (sql, meant) => {
      await expect(answer(sql)).rejects.toThrow(`did you mean ${meant}?`);
    },
  );

  test('a name that is near to none is answered with those there are', async () => {
    await expect(answer('select * from customers')).rejects.toThrow(
      /^SQL: there is no table customers; there are .*entries.*parties/,
    );
    await expect(answer('select colour from checkpoints')).rejects.toThrow(
      /^SQL: there is no column colour; there are .*at_block/,
    );
  });

  test('another mistake stays in the words of DuckDB', async () => {
    await expect(answer('selekt 1')).rejects.toThrow(/^SQL: Parser Error/);
  });
});

test('a sum of more digits than DuckDB adds says how to add them', async () => {
  await expect(
    answer('select asset_id, sum(quantity) from ledger_entries group by 1'),
  ).rejects.toThrow(
    /Overflow in HUGEINT addition: .*; the sum has more than 38 digits: write exact_sum\(quantity, quantity_text\)/,
  );
  await expect(
    answer(
      'select exact_sum(quantity, quantity_text) from ledger_entries group by asset_id',
    ),
  ).resolves.toBe('no error');
});
