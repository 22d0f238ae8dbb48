import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { openDuckDb } from '../../../src/lake/local/duckdb.ts';
import { type QueryOptions, runQuery } from '../../../src/lake/query/query.ts';

test('JSON output writes types without a JSON form as DuckDB shows them, nested or not', async () => {
  const spill = await mkdtemp(join(tmpdir(), 'ledger-mirror output '));
  onTestFinished(() => rm(spill, { recursive: true }));
  await using engine = await openDuckDb(spill);
  const chunks: Buffer[] = [];
  const output = new Writable({
    write: (chunk: Buffer, _, done) => {
      chunks.push(chunk);
      done();
    },
  });
  await runQuery(
    engine,
    `select interval '1 day' as day, max(vega_time) - min(vega_time) as span, [interval '1 hour'] as list,
       {'of': interval '2 months', 'n': 1::bigint} as struct, map {'a': 1} as map, array_value(1, 2) as fixed,
       union_value(num := 2) as either, null::interval as nothing, count(*) as rows
     from values (timestamp '2026-11-01 00:00:00'), (timestamp '2026-11-03 01:02:03.000004') as t(vega_time)`,
    { format: 'ndjson' },
    output,
    new AbortController().signal,
  );
  expect(JSON.parse(Buffer.concat(chunks).toString())).toEqual({
    day: '1 day',
    span: '2 days 01:02:03.000004',
    list: ['01:00:00'],
    struct: { of: '2 months', n: '1' },
    map: "{'a': 1}",
    fixed: '[1, 2]',
    either: '2',
    nothing: null,
    rows: 2,
  });
});

test.each(['table', 'csv', 'ndjson', 'json', 'parquet'] as const)(
  'an answer in %s that fails halfway is an error and not a shorter answer',
  async (format) => {
    const spill = await mkdtemp(join(tmpdir(), 'ledger-mirror output '));
    onTestFinished(() => rm(spill, { recursive: true }));
    await using engine = await openDuckDb(spill);
    const output = new Writable({ write: (_chunk, _, done) => done() });
    const sql = `select case when range = 500000 then error('boom') else range::varchar end as v from range(1000000)`;
    const ask = (text: string) =>
      runQuery(
        engine,
        text,
        { format, folder: spill },
        output,
        new AbortController().signal,
      );
    await expect(ask(sql)).rejects.toMatchObject({
      code: 'DUCKDB',
      message: expect.stringContaining('EXPLAIN ANALYZE'),
    });
    await expect(ask(`explain analyze ${sql}`)).rejects.toThrow('boom');
  },
);

test('a plan is shown in a table as DuckDB draws it, line by line', async () => {
  const spill = await mkdtemp(join(tmpdir(), 'ledger-mirror output '));
  onTestFinished(() => rm(spill, { recursive: true }));
  await using engine = await openDuckDb(spill);
  const chunks: Buffer[] = [];
  const output = new Writable({
    write: (chunk: Buffer, _, done) => {
      chunks.push(chunk);
      done();
    },
  });
  const sql = `explain select '\u001b[31m' as escaped, count(*) from range(5)`;
  await runQuery(
    engine,
    sql,
    { format: 'table', widthMax: 80 },
    output,
    new AbortController().signal,
  );
  const lines = Buffer.concat(chunks).toString().split('\n');
  expect(lines.length).toBeGreaterThan(5);
  expect(lines[0]).toMatch(/^┌─+┐$/);
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(80);
  expect(lines.join('')).not.toContain('\u001b');
});

const ASSET = 'a'.repeat(64);
const AMOUNTS = `select * from (values ('${ASSET}', 1234567890123456789012345000001::hugeint, 3::bigint),
  ('${'b'.repeat(64)}', -1500000::hugeint, 1::bigint)) as t(asset_id, quantity, entries)`;
const UNITS = new Map([[ASSET, { symbol: 'USDT', decimals: 6 }]]);

async function written(
  sql: string,
  options: QueryOptions,
): Promise<readonly string[]> {
  const spill = await mkdtemp(join(tmpdir(), 'ledger-mirror output '));
  onTestFinished(() => rm(spill, { recursive: true }));
  await using engine = await openDuckDb(spill);
  const output = new PassThrough();
  const text = readText(output);
  await runQuery(engine, sql, options, output, new AbortController().signal);
  output.end();
  return (await text).split('\n');
}

test('a table shows amounts in the units of known assets, to the last digit', async () => {
  const [heading, , first, second] = await written(AMOUNTS, {
    format: 'table',
    units: UNITS,
  });
  expect(heading).toMatch(
    /^asset_id +quantity \(smallest unit if no symbol\) +entries$/,
  );
  expect(first).toMatch(
    /^a{64} +1,234,567,890,123,456,789,012,345.000001 USDT +3$/,
  );
  expect(second).toMatch(/^b{64} +-1,500,000 +1$/);
});

test('a table says that amounts are in the smallest unit if no decimals are known', async () => {
  const [heading, , first] = await written(AMOUNTS, { format: 'table' });
  expect(heading).toMatch(/ quantity \(smallest unit\) +entries$/);
  expect(first).toMatch(/ 1,234,567,890,123,456,789,012,345,000,001 +3$/);
});

test('a table does not divide what a query has divided', async () => {
  const [heading, , first] = await written(
    `select '${ASSET}' as asset_id, 1500000 / 1000000 as quantity, 1.50::decimal(9,2) as paid`,
    { format: 'table', units: UNITS },
  );
  expect(heading).toMatch(/^asset_id +quantity +paid$/);
  expect(first).toMatch(/ 1\.5 +1\.50$/);
});

test.each(['csv', 'json', 'ndjson'] as const)(
  'amounts in %s stay in the smallest unit',
  async (format) => {
    const lines = await written(AMOUNTS, { format, units: UNITS });
    expect(lines).toEqual(await written(AMOUNTS, { format }));
    expect(lines.join('\n')).toContain('1234567890123456789012345000001');
  },
);
