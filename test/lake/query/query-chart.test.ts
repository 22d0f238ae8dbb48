/** A result drawn in the terminal. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterAll, expect, test } from 'vitest';
import type { AssetUnits } from '../../../src/format/amounts.js';
import { openDuckDb } from '../../../src/lake/local/duckdb.ts';
import { runQuery } from '../../../src/lake/query/query.ts';
import {
  drawChart,
  type KeptResult,
} from '../../../src/lake/query/query-chart.ts';
import { NEVER_ABORTED } from '../../support/samples.ts';

const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror chart '));
const engine = await openDuckDb(folder);
afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

async function drawn(
  sql: string,
  figure?: string,
  units: AssetUnits = new Map(),
): Promise<string> {
  let text = '';
  const output = new Writable({
    write: (piece: Buffer, _encoding, done) => {
      text += piece.toString();
      done();
    },
  });
  const options = { format: 'chart', widthMax: 40, figure, units } as const;
  await runQuery(engine, sql, options, output, NEVER_ABORTED);
  return text;
}

test('a chart has a bar for each month, as long as its figure', async () => {
  expect(
    await drawn(
      `from (values ('2026-01', 1000), ('2026-02', 500), ('2026-03', 0)) as t(month, paid)`,
    ),
  ).toBe(
    [
      'paid',
      `2026-01  1,000  ${'█'.repeat(24)}`,
      `2026-02    500  ${'█'.repeat(12)}`,
      '2026-03      0',
      '',
    ].join('\n'),
  );
});

test('a chart shows figures in the units of its asset, and else says that they are not', async () => {
  const known = 'a'.repeat(64);
  const unknown = 'b'.repeat(64);
  const text = await drawn(
    `from (values ('2026-01', '${known}', 1500000::hugeint), ('2026-02', '${known}', 3000000::hugeint),
                  ('2026-01', '${unknown}', 7000::hugeint)) as t(month, asset_id, paid)`,
    undefined,
    new Map([[known, { symbol: 'USDT', decimals: 6 }]]),
  );
  expect(text.split('\n').map((line) => line.replace(/ *█+$/, ''))).toEqual([
    'asset_id aaaaaaaa…: paid',
    '2026-01  1.5 USDT',
    '2026-02    3 USDT',
    '',
    'asset_id bbbbbbbb…: paid (smallest unit)',
    '2026-01  7,000',
    '',
  ]);
});

test('a chart stacks the values of a second column of few', async () => {
  const text = await drawn(
    `from (values (date '2026-01-01', 'a', 3), (date '2026-01-01', 'b', 1), (date '2026-01-02', 'a', 4)) as t(day, kind, n)`,
  );
  expect(text).toContain('n by kind: █ a  ▓ b');
  expect(text).toMatch(/^2026-01-01 {2}4 {2}█{18,19}▓{6,7}$/m);
  expect(text).toMatch(/^2026-01-02 {2}4 {2}█{25}$/m);
});

test('a chart adds amounts beyond every number exactly', async () => {
  const huge = '9'.repeat(45);
  expect(
    await drawn(
      `from (values ('x', cast('${huge}' as bignum)), ('x', cast('1' as bignum))) as t(name, held)`,
    ),
  ).toContain(`1,${'000,'.repeat(14)}000`);
});

test('a chart of several assets is one for each, on its own scale, and adds nothing across them', async () => {
  const sql = `from (values
    ('2026-01', repeat('aa', 32), 'FEE', 3), ('2026-01', repeat('aa', 32), 'BOND', 1),
    ('2026-02', repeat('aa', 32), 'FEE', 2), ('2026-01', repeat('bb', 32), 'FEE', 900))
    as t(month, asset_id, transfer_type, paid)`;
  expect(await drawn(sql)).toBe(
    [
      'asset_id aaaaaaaa…: paid by transfer_type: █ BOND  ▓ FEE',
      `2026-01  4  ${'█'.repeat(7)}${'▓'.repeat(21)}`,
      `2026-02  2  ${'▓'.repeat(14)}`,
      '',
      'asset_id bbbbbbbb…: paid',
      `2026-01  900  ${'█'.repeat(26)}`,
      '',
    ].join('\n'),
  );
});

test('assets whose ids begin alike are still told apart', async () => {
  const text = await drawn(
    `select '2026-01' as month, repeat('ab', 31) || end_ as asset_id, 5 as held
       from (values ('00'), ('11')) as t(end_)`,
  );
  expect(text.match(/^2026-01 {2}5 /gm)).toHaveLength(2);
  expect(text).not.toContain('10');
});

test('a chart counts the entries of several assets together', async () => {
  const sql = `from (values ('2026-01', 'a', 3), ('2026-01', 'b', 4)) as t(month, asset_id, entries)`;
  expect(await drawn(sql)).toMatch(
    /^entries by asset_id: █ a {2}▓ b\n2026-01 {2}7 /,
  );
});

test('amounts of assets that have only their asset for a label are not compared', async () => {
  const sql = `from (values ('a', 3), ('b', 4)) as t(asset_id, total)`;
  expect(await drawn(sql)).toBe(
    'No chart: each asset has its own unit, so total of several assets cannot be ' +
      'compared; add a time or a name.\n',
  );
  expect(
    await drawn(`from (values ('a', 3), ('b', 4)) as t(asset_id, entries)`),
  ).toMatch(/^entries\na {2}3 /);
});

test('a chart of very many assets says how many it leaves out', async () => {
  const text = await drawn(
    `select '2026-01' as month, 'asset' || n as asset_id, n as held from range(1, 12) t(n)`,
  );
  expect(text.match(/^2026-01/gm)).toHaveLength(8);
  expect(text).toContain('… and 3 more of asset_id');
});

test('a chart draws the column that is named', async () => {
  const sql = `select 'x' as name, 1 as entries, 77 as quantity`;
  expect(await drawn(sql, 'entries')).toMatch(/^entries\nx {2}1 /);
  expect(await drawn(sql)).toMatch(/^quantity\nx {2}77 /);
  expect(await drawn(sql, 'quantity')).toMatch(/^quantity\nx {2}77 /);
});

test('a chart of a column that is not there is refused, with the columns that are', async () => {
  const sql = `select 'x' as name, 1 as entries, 77 as quantity`;
  await expect(drawn(sql, 'quantify')).rejects.toThrow(
    '--chart: the result has no amounts called quantify; it has entries, quantity; did you mean quantity?',
  );
  await expect(drawn(sql, 'nothing')).rejects.toThrow(
    'no amounts called nothing; it has entries, quantity',
  );
});

test('a chart says how many bars it leaves out, and ids are cut', async () => {
  const text = await drawn(
    `select repeat('ab', 32) as party_id, 1 as n union all by name
     select 'p' || range as party_id, range as n from range(70)`,
  );
  expect(text).toContain('abababab…');
  expect(text).toContain('… and 11 more');
});

test.each([
  [
    `select 'x' as name`,
    'No chart: no column of the result contains amounts.\n',
  ],
  [
    'select 1 as n',
    'No chart: the result has one row, so there is nothing to compare.\n',
  ],
  [
    'select n from range(2) t(n)',
    'No chart: no column of the result contains times or names.\n',
  ],
  [`select cast(null as varchar) as name, 3 as n where false`, 'n\n'],
  [
    `select 'x' as name, '5 or 7' as balance union all select 'y', '3'`,
    'No chart: balance has several possible values in some rows, so these rows have ' +
      'no length; leave them out to draw the others.\n',
  ],
])('%s has no chart, and says so', async (sql, told) => {
  expect(await drawn(sql)).toBe(told);
});

test('whole amounts that are text are drawn, as balances are', async () => {
  expect(
    await drawn(`from (values ('x', '20'), ('y', '10')) as t(name, balance)`),
  ).toBe(
    `balance (smallest unit)\nx  20  ${'█'.repeat(33)}\ny  10  ${'█'.repeat(17)}\n`,
  );
});

test('a floating-point figure of a chart has a prefix, and no notation of programs', async () => {
  const text = await drawn(
    `select 'x' as name, 2e23::double as average union all select 'y', 1e23`,
  );
  expect(text.replaceAll('\u202F', ' ')).toMatch(/^x {2}200 Z {2}█+$/m);
});

test('a result that was shown is drawn afterwards from its rows, again and again', async () => {
  let kept: KeptResult | undefined;
  const output = new Writable({ write: (_piece, _encoding, done) => done() });
  await runQuery(
    engine,
    `from (values ('x', 2, 8), ('y', 1, 4)) as t(name, entries, paid)`,
    {
      format: 'table',
      keep: (result) => {
        kept = result;
      },
    },
    output,
    NEVER_ABORTED,
  );
  if (kept === undefined) throw new Error('nothing was kept');
  const options = { units: new Map(), widthMax: 40 };
  expect(drawChart(kept, { ...options, figure: undefined })).toMatch(
    /^paid\nx {2}8 /,
  );
  expect(drawChart(kept, { ...options, figure: 'entries' })).toMatch(
    /^entries\nx {2}2 /,
  );
});

test('a result of too many rows is not kept in memory to be drawn', async () => {
  const sql = `select 'a' as name, n from range(100_001) t(n)`;
  expect(await drawn(sql)).toBe(
    'No chart: the result has 100,001 rows, and a chart takes 100,000; ' +
      'sum them up with GROUP BY.\n',
  );
});

test('a chart of parts with both signs stays within its width', async () => {
  const text = await drawn(
    `from (values ('x', 'in', 100), ('x', 'out', -90), ('y', 'in', 5), ('y', 'out', -5)) as t(name, kind, n)`,
  );
  expect(text).toMatch(/^x {2}10 {2}█{17}▓{16}$/m);
  expect(text).toMatch(/^y {3}0 {2}█▓$/m);
});

test.each(['year', 'quarter', 'month', 'week', 'day', 'hour'])(
  'a chart has a bar for each %s, and takes it for no amount',
  async (part) => {
    expect(await drawn(`select 3 as ${part}, 7 as entries`)).toMatch(
      /^entries\n3 {2}7 /,
    );
  },
);

test('a chart has a bar for each party, not for the time of its last entry', async () => {
  const text = await drawn(
    `from (values ('p1', 3, timestamptz '2026-11-29 05:25:51.5Z'), ('p2', 2, timestamptz '2026-11-12 05:25:51Z'))
       as t(party_id, entries, latest)`,
  );
  expect(text).toMatch(/^entries\np1 {2}3 .*\np2 {2}2 /);
});

test('a chart has a bar for each moment of a series, whatever names stand before it', async () => {
  const text = await drawn(
    `from (values ('p1', 3, timestamp '2026-11-28 05:25:51'), ('p2', 2, timestamp '2026-11-29 05:25:51'))
       as t(party_id, entries, vega_time)`,
  );
  expect(text).toContain('\n2026-11-28 05:25:51  3 ');
});
