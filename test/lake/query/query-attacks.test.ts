/**
 * SQL from somebody who is told "read-only", over an engine that is not even confined:
 * what may run at all.
 */
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { UsageError } from '../../../src/errors/errors.ts';
import { type Engine, openDuckDb } from '../../../src/lake/local/duckdb.ts';
import { type QueryFormat, runQuery } from '../../../src/lake/query/query.ts';

const dir = mkdtempSync(join(tmpdir(), 'ledger-mirror query '));
const spill = mkdtempSync(join(dir, 'spill-'));
const kept = join(dir, 'kept.parquet');
const target = join(dir, 'written');
let engine: Engine & AsyncDisposable;

beforeAll(async () => {
  engine = await openDuckDb(spill);
  await engine.connection.run(`create table held as select 'x' as party_id`);
  writeFileSync(kept, 'a file of the lake');
});
afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

async function run(
  sql: string,
  format: QueryFormat = 'table',
): Promise<string> {
  const written: string[] = [];
  const output = new Writable({
    write(chunk: Buffer, _encoding, done) {
      written.push(chunk.toString());
      done();
    },
  });
  await runQuery(engine, sql, { format }, output, new AbortController().signal);
  return written.join('');
}

describe('a query', () => {
  test.each([
    `explain analyze copy (select 1) to '${target}' (format csv)`,
    `explain analyze copy (select 1) to (list_filter(['${target}'], lambda x: true)[1]) (format csv, use_tmp_file false)`,
    `explain analyze copy held to '${kept}' (format csv)`,
    `EXPLAIN (ANALYZE) copy held to '${target}'`,
    `explain (analyze, format json) copy held to '${target}'`,
    `/* */ explain -- select 1\n analyze copy held to '${target}'`,
    `explain analyze /* select 1 */ insert into held values ('y')`,
    `explain analyze create table other as select 1`,
    `explain analyze delete from held`,
    `explain copy held to '${target}'`,
    `/* /* */ explain select 1 --*/ explain analyze copy held to '${target}'`,
    `explain (select 1) copy held to '${target}'`,
    `explain analyze/**/copy held to '${target}'`,
    `explain (analyze)copy held to '${target}'`,
    `explain (format 'json', analyze) copy held to '${target}'`,
    `copy held to '${target}'`,
    `with x as (select 1) insert into held select 'y'`,
    `insert into held values ('y') returning party_id`,
    `select 1; copy held to '${target}'`,
    `select * from query('copy held to ''${target}''')`,
    `attach '${target}' as other`,
    `install httpfs`,
    `load httpfs`,
    `set memory_limit = '1TB'`,
    `reset memory_limit`,
    `call pragma_version()`,
    `prepare p as copy held to '${target}'`,
    `vacuum`,
    `checkpoint`,
    `drop table held`,
    ``,
  ])('a query that would write is refused: %s', async (sql) => {
    await expect(run(sql)).rejects.toThrow(UsageError);
    expect(existsSync(target)).toBe(false);
    expect(readFileSync(kept, 'utf8')).toBe('a file of the lake');
    expect(await run('select * from held', 'csv')).toBe('party_id\nx\n');
  });

  test.each([
    'select * from held',
    'from held',
    'with x as (select 1 as a) select * from x',
    'describe held',
    'show tables',
    'summarize held',
    'explain select * from held',
    'explain analyze select * from held',
    'EXPLAIN (FORMAT JSON) select * from held',
    ' explain\nanalyze\n(select count(*) from held)',
    '-- why\nselect /* how */ 1',
  ])('a query that only reads is answered: %s', async (sql) => {
    expect((await run(sql)).length).toBeGreaterThan(0);
  });
});

describe('the engine of a query, as it is configured', () => {
  test('the query engine touches no file outside the lake, even while it prepares a refused statement', async () => {
    await using confined = await openDuckDb(spill);
    await confined.connection.run('set enable_external_access = false');
    await confined.connection.run('set lock_configuration = true');
    const ask = (sql: string): Promise<unknown> =>
      runQuery(
        confined,
        sql,
        { format: 'csv' },
        new Writable(),
        new AbortController().signal,
      );
    for (const sql of [
      `export database '${target}'`,
      `select * from read_text('${kept}')`,
      `select * from read_csv('/etc/passwd')`,
      `select * from glob('${dir}/*')`,
      `set enable_external_access = true`,
    ]) {
      await expect(ask(sql)).rejects.toThrow(/SQL: |Cannot answer the query/);
      expect(existsSync(target)).toBe(false);
    }
  });
});

describe('a result on a terminal', () => {
  test('a result on a terminal contains no control characters from mirrored values or names', async () => {
    const escape = '\u001b]0;PWNED\u0007\u001b[2J\u009b31m\u202e\u2066';
    const table = await run(
      `select '${escape}' as "name${escape}", 'plain é 表' as other`,
    );
    expect(table).toContain('PWNED');
    expect(table).toContain('plain é 表');
    expect(table).not.toMatch(
      // oxlint-disable-next-line no-control-regex -- control characters are what this test looks for
      /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/,
    );
  });

  test('formats for programs keep control characters', async () => {
    const escape = '\u001b]0;PWNED\u0007';
    expect(await run(`select '${escape}' as text`, 'csv')).toBe(
      `text\n${escape}\n`,
    );
  });
});
