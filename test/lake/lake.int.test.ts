import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { buildLake, type LakeDeps } from '../../src/lake/build/build.ts';
import { LAKE_TABLES, SUMMARY_TABLES } from '../../src/lake/tables/columns.ts';
import { openLake } from '../../src/lake/query/lake.ts';
import { trim } from '../../src/lake/local-copies.ts';
import { runQuery, type QueryOptions } from '../../src/lake/query/query.ts';
import {
  type Inquiry,
  inquiry,
  type QuestionValues,
  READY_QUESTIONS,
  readyQuestion,
} from '../../src/lake/query/questions.ts';
import { describeLake } from '../../src/lake/overview.ts';
import { verifyLake } from '../../src/lake/verify/verify-lake.ts';
import { loadAll } from '../../src/warehouse/load-all.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { LakeStore } from '../../src/lake/store/lake-store.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { loadWorld } from '../warehouse/load-world.ts';
import { openDoubleStore, S3Double } from '../support/stores/s3-double.ts';
import { HEADER_12, HEADER_13 } from '../ledger/csv.ts';
import {
  ASSET,
  PARTY_A,
  PARTY_B,
  publish,
  row12,
  row13,
} from '../warehouse/published.ts';
import { addCheckpoints, addParties } from '../support/mirror-arrange.ts';

const world = await loadWorld();
const { database, warehouse } = world;

const signal = new AbortController().signal;
const HUGE = `-${'9'.repeat(60)}`;
const RANGE = { from: '2023-04-01T00:00:00Z', to: '2023-06-01T00:00:00Z' };

let objects: ObjectStore;
let deps: LakeDeps;

beforeEach(async () => {
  ({ objects } = world);
  const scratchDir = await mkdtemp(join(tmpdir(), 'ledger-mirror-lake-'));
  onTestFinished(() => rm(scratchDir, { recursive: true, force: true }));
  deps = {
    repository: new LakeStore(warehouse.pool),
    objects,
    scratchDir,
    retentionMs: 7 * 86_400_000,
  };
});

async function fill(): Promise<void> {
  const entry = {
    time: '2023-05-01 00:00:00.000001+00',
    from: PARTY_A,
    to: PARTY_B,
  };
  const header = `${HEADER_12},note`;
  const rows = [
    row12({
      time: '2023-04-30 23:59:59.9+00',
      quantity: '99999999999999999999999999999999999999',
    }),
    row12({
      time: '2023-04-30 23:59:59.9+00',
      quantity: '99999999999999999999999999999999999999',
    }),
    row12({ ...entry, type: 'MAKER_FEE_PAY', balances: [HUGE, '0'] }),
  ];
  const noted = rows.map((row) => `${row},"a ""quoted"", €\nnote"`);
  await publish(database.pool, objects, {
    party: PARTY_A,
    ...RANGE,
    header,
    rows: noted,
  });
  const later = [
    row13({ ...entry, type: 'MAKER_FEE_PAY', balances: [HUGE, '0'] }, PARTY_B),
  ];
  await publish(database.pool, objects, {
    party: PARTY_B,
    ...RANGE,
    header: HEADER_13,
    rows: later,
  });
  await addParties(database.pool, ['network', PARTY_A]);
  await addCheckpoints(database.pool, [
    {
      epoch: 1,
      at_block: '18446744073709551615',
      hash: 'h2',
      block_hash: 'b2',
      copies: 2,
    },
    {
      epoch: 1,
      at_block: '18446744073709551000',
      hash: 'h1',
      block_hash: 'b1',
      copies: 1,
    },
  ]);
  await load();
}

async function keysBelow(prefix: string): Promise<readonly string[]> {
  const keys: string[] = [];
  for await (const { key } of objects.list(prefix, signal)) keys.push(key);
  return keys;
}

async function load(): Promise<void> {
  const loading = { repository: new LoadStore(warehouse), objects };
  expect(await loadAll(loading, signal)).toMatchObject({ verdict: 'complete' });
}

async function query(
  sql: string,
  options: Partial<QueryOptions> = {},
): Promise<string> {
  const pieces: string[] = [];
  const output = new Writable({
    write(piece: Buffer, _encoding, done) {
      pieces.push(piece.toString());
      setImmediate(done);
    },
  });
  await using lake = await openLake(deps, signal);
  await runQuery(lake, sql, { format: 'json', ...options }, output, signal);
  await new Promise<void>((resolve) => output.end(resolve));
  return pieces.join('');
}

async function rowsOf(
  sql: string,
): Promise<readonly Record<string, unknown>[]> {
  const document = JSON.parse(await query(sql)) as {
    rows: Record<string, unknown>[];
  };
  return document.rows;
}

describe('the lake', () => {
  test('the lake equals the warehouse, to the last digit', async () => {
    await fill();
    const built = await buildLake(deps, signal);

    expect(built).toMatchObject({ version: 1, changed: LAKE_TABLES });
    const columns = `party_id, quantity, effect, transfer_type, asset_id, account_from_market_id, account_from_party_id,
      account_from_account_type, account_to_market_id, account_to_party_id, account_to_account_type, account_to_balance`;
    const inLake = await rowsOf(
      `select ${columns}, epoch_us(vega_time) as micros, coalesce(cast(account_from_balance as varchar), account_from_balance_text) as balance,
        json_extract_string(extra, '$.note') as note, is_counted
       from ledger_entries order by vega_time, party_id`,
    );
    const { rows } = await database.pool.query(
      `select ${columns}, (extract(epoch from vega_time) * 1000000)::bigint::text as micros, account_from_balance as balance, extra ->> 'note' as note,
        party_id = '${PARTY_A}' as is_counted
       from mirror.ledger_entries order by vega_time, party_id`,
    );
    expect(
      inLake.map((row) => ({ ...row, micros: String(row['micros']) })),
    ).toEqual(rows);
    expect(rows).toHaveLength(4);
    expect(
      await rowsOf(
        'select epoch, at_block, hash from checkpoints order by at_block',
      ),
    ).toEqual([
      { epoch: 1, at_block: '18446744073709551000', hash: 'h1' },
      { epoch: 1, at_block: '18446744073709551615', hash: 'h2' },
    ]);
    expect(await rowsOf('select count(*) as n from parties')).toEqual([
      { n: 2 },
    ]);
    expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
      rows: built.rows,
    });
  });

  test('the lake appends new rows in new files and leaves nothing else behind', async () => {
    await fill();
    await buildLake(deps, signal);
    expect(await buildLake(deps, signal)).toMatchObject({
      version: 1,
      changed: [],
    });
    const before = await keysBelow('lake/ledger_entries/');
    const june = { from: '2023-06-01T00:00:00Z', to: '2023-07-01T00:00:00Z' };
    await publish(database.pool, objects, {
      party: PARTY_A,
      ...june,
      rows: [row12({ time: '2023-06-01 00:00:00+00' })],
    });
    await load();

    const built = await buildLake(deps, signal);

    expect(built).toMatchObject({
      version: 2,
      changed: ['ledger_entries', 'coverage', ...SUMMARY_TABLES],
    });
    const after = await keysBelow('lake/ledger_entries/');
    expect(after.filter((key) => !before.includes(key))).toEqual([
      'lake/ledger_entries/_delta_log/00000000000000000001.json',
      expect.stringMatching(
        /^lake\/ledger_entries\/month=2023-06\/part-[0-9a-f-]{36}\.parquet$/,
      ),
    ]);
    const spool = await readdir(
      fileURLToPath(new URL('.spool', `${objects.url}/`)),
    );
    expect(spool).toEqual([]);
    expect(await readdir(deps.scratchDir)).toEqual([]);
    expect(await rowsOf('select count(*) as n from ledger_entries')).toEqual([
      { n: 5 },
    ]);
  });

  test('a query fetches files of a lake in S3', async () => {
    await using double = await S3Double.start();
    objects = openDoubleStore(double.endpoint, join(deps.scratchDir, 'spool'));
    onTestFinished(() => objects[Symbol.asyncDispose]());
    deps = { ...deps, objects };
    await fill();

    expect(await buildLake(deps, signal)).toMatchObject({
      version: 1,
      rows: 20n,
    });
    expect(await rowsOf('select count(*) as n from ledger_entries')).toEqual([
      { n: 4 },
    ]);
    expect(await verifyLake(deps, { deep: true }, signal)).toMatchObject({
      problems: [],
      segmentsBehind: 0,
    });
    const { tables } = await describeLake(deps, signal);
    expect(tables.map(({ table }) => table)).toEqual(LAKE_TABLES);
  });

  test('the database decides one content for a version, however many ask at once', async () => {
    const register = new LakeStore(warehouse.pool);
    const table = 'parties';
    const decide = (
      version: number,
      content: string,
      after?: number,
    ): Promise<boolean> =>
      register.decideCommit(
        's3://b/p',
        { table, version, content: Buffer.from(content) },
        after,
      );
    const isWon = (ends: readonly boolean[]): number =>
      ends.filter(Boolean).length;
    expect(
      isWon(
        await Promise.all(['a', 'b', 'c'].map((content) => decide(0, content))),
      ),
    ).toBe(1);
    expect(
      isWon(
        await Promise.all(
          ['a', 'b', 'c'].map((content) => decide(1, content, 0)),
        ),
      ),
    ).toBe(1);
    const decided = await register.decidedCommits('s3://b/p');
    expect(decided).toMatchObject([
      { table, version: 1, content: expect.any(Buffer) as Buffer },
    ]);
    await register.forgetContent('s3://b/p', {
      table,
      version: 0,
      content: null,
    });
    expect(await register.decidedCommits('s3://b/p')).toEqual(decided);
    await register.forgetContent('s3://b/p', {
      table,
      version: 1,
      content: null,
    });
    expect(await register.decidedCommits('s3://b/p')).toEqual([
      { table, version: 1, content: null },
    ]);
    expect(await register.decidedCommits('s3://another/p')).toEqual([]);
  });

  test('the lake fetches only the files that a statement can reach, each once', async () => {
    await fill();
    await buildLake(deps, signal);
    const fetched: string[] = [];
    const remote = new Proxy(objects, {
      get: (store, name) => {
        if (name === 'read') {
          return (key: string, ...rest: [AbortSignal]) => {
            if (key.endsWith('.parquet'))
              fetched.push(key.split('/').slice(1, -1).join('/'));
            return store.read(key, ...rest);
          };
        }
        const own: unknown = Reflect.get(store, name);
        return typeof own === 'function' ? (own.bind(store) as unknown) : own;
      },
    });
    const count = async (sql: string): Promise<unknown> => {
      await using lake = await openLake(
        { ...deps, objects: remote, sql },
        signal,
      );
      return (await lake.connection.runAndReadAll(sql)).getRowsJson()[0]?.[0];
    };
    expect(await count('select count(*) from parties')).toBe('2');
    expect(fetched.splice(0)).toEqual(['parties']);
    const entries = 'select count(*) from LEDGER_ENTRIES';
    const balances = async (values: QuestionValues): Promise<void> => {
      const { sql, range } = inquiry(readyQuestion('balances')!, values);
      await using lake = await openLake(
        { ...deps, objects: remote, sql, range },
        signal,
      );
      expect(lake.version).toBe(1);
    };
    await balances({ until: '2023-05-01' });
    expect(fetched.splice(0)).toEqual([
      'coverage',
      'monthly_balances/month=2023-04',
    ]);
    await balances({ until: '2023-05-02' });
    expect(fetched.splice(0)).toEqual(['ledger_entries/month=2023-05']);
    await balances({});
    expect(fetched.splice(0)).toEqual(['monthly_balances/month=2023-05']);
    expect(await count(entries)).toBe('4');
    expect(fetched.splice(0)).toEqual(['ledger_entries/month=2023-04']);
    expect(
      await count(`select count(*) from query_table('ledger_' || 'entries')`),
    ).toBe('4');
    const kept = join(deps.scratchDir, 'fetched');
    await trim(kept, 1, -1_000);
    const left = await readdir(kept, { recursive: true });
    expect(left.filter((name) => name.endsWith('.parquet'))).toEqual([]);
    expect(await count(entries)).toBe('4');
  });

  test.each([
    [
      'a damaged file',
      'LAKE_FILE_CORRUPT',
      (path: string) => writeFile(path, 'PAR1'),
    ],
    ['a lost file', 'OBJECT_MISSING', (path: string) => rm(path)],
  ])('verifyLake reports %s', async (_name, code, damage) => {
    await fill();
    await buildLake(deps, signal);
    const [first = ''] = await keysBelow('lake/ledger_entries/month=');
    await damage(fileURLToPath(new URL(first, `${objects.url}/`)));
    expect(
      (await verifyLake(deps, { deep: false }, signal)).problems,
    ).toMatchObject([{ code, subject: first }]);
  });
});

describe('queries of the lake', () => {
  test('a query reports a missing lake and answers over an empty one', async () => {
    await expect(query('select 1')).rejects.toMatchObject({
      code: 'LAKE_MISSING',
    });
    await buildLake(deps, signal);
    expect(
      await rowsOf('select * from ledger_entries, parties, checkpoints'),
    ).toEqual([]);
    expect(
      await query('select count(*) as n from parties', { format: 'csv' }),
    ).toBe('n\n0\n');
  });

  test('query output is exact in tables, CSV and JSON', async () => {
    await buildLake(deps, signal);
    const sql = `select 9007199254740993 as big, cast(1 as hugeint) as amount, 0.10 as dec, null as nothing, 'a,"b"' as text,
      timestamptz '2023-05-01 12:00:00.000001+02' as at_time, [1, 2] as list, {'a': 1} as struct, true as yes`;
    expect(await query(sql, { format: 'csv' })).toBe(
      'big,amount,dec,nothing,text,at_time,list,struct,yes\n9007199254740993,1,0.10,,"a,""b""",2023-05-01 10:00:00.000001+00,"[1, 2]",{\'a\': 1},true\n',
    );
    expect((await rowsOf(sql))[0]).toEqual({
      big: '9007199254740993',
      amount: '1',
      dec: '0.10',
      nothing: null,
      text: 'a,"b"',
      at_time: '2023-05-01 10:00:00.000001+00',
      list: [1, 2],
      struct: { a: 1 },
      yes: true,
    });
    expect(
      await query(`select 1 as n, 'x' as longer_name`, { format: 'table' }),
    ).toBe('n  longer_name\n─  ───────────\n1  x\n(1 row)\n');
  });

  test('query output shortens ids only in a table that is wider than the terminal', async () => {
    await buildLake(deps, signal);
    const sql = `select '${ASSET}' as id, 'c0ffee' as word, 1 as n`;
    const whole = `${ASSET}  c0ffee  1`;
    expect(
      await query(sql, { format: 'table', widthMax: whole.length }),
    ).toContain(whole);
    const short = await query(sql, {
      format: 'table',
      widthMax: whole.length - 1,
    });
    expect(short.split('\n')[2]).toBe('c0c0c0c0…  c0ffee  1');
    expect(await query(sql, { format: 'csv', widthMax: 10 })).toContain(ASSET);
  });

  test('a query streams a large result at the pace of its reader', async () => {
    await buildLake(deps, signal);
    const text = await query('select range as n from range(300000)', {
      format: 'csv',
    });
    expect(text.split('\n')).toHaveLength(300_002);
  });

  test.each([
    ['a file', `select * from read_text('/etc/hostname')`],
    ['another folder', `select * from glob('/etc/*')`],
    ['a database file', `attach '/tmp/x.db'`],
    [
      'the network',
      `select * from read_parquet('https://example.org/x.parquet')`,
    ],
    ['an extension', 'install httpfs'],
    ['a setting', `set memory_limit = '10GB'`],
    ['writing', `copy (select 1) to 'x.csv'`],
    ['a table', 'create table t (a int)'],
    ['a view', 'drop view parties'],
    ['two statements', 'select 1; select 2'],
    ['none', ''],
    ['a mistake', 'selec 1'],
  ])('a query cannot reach or do %s', async (_name, sql) => {
    await fill();
    await buildLake(deps, signal);
    await expect(query(sql)).rejects.toMatchObject({
      code: expect.stringMatching(/^(?:USAGE|DUCKDB)$/),
    });
  });

  test('a query ends at its time limit and when it is cancelled', async () => {
    await buildLake(deps, signal);
    const endless =
      'select sum(a.range * b.range) from range(10000000) a, range(10000000) b';
    await expect(query(endless, { timeoutMs: 200 })).rejects.toMatchObject({
      code: 'QUERY_TIMEOUT',
    });
    await using lake = await openLake(deps, signal);
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error('told to stop')), 100);
    const output = new Writable({ write: (_piece, _encoding, done) => done() });
    await expect(
      runQuery(lake, endless, { format: 'csv' }, output, stop.signal),
    ).rejects.toThrow('told to stop');
  });

  test.each(READY_QUESTIONS.map((question) => [question.name, question]))(
    'the ready question %s has an answer',
    async (_name, question) => {
      await fill();
      await buildLake(deps, signal);
      const ask = ({ sql, parameters }: Inquiry): Promise<string> =>
        query(sql, { parameters });
      const required = {
        ...(question.required?.party && { party: PARTY_A }),
        ...(question.isOfAllTime && { since: '2030-01-01T00:00:00Z' }),
        ...(question.required?.at && { at: '2023-05-01T00:00:00Z' }),
      };
      const everything = await ask(inquiry(question, required));
      const nothing = await ask(
        inquiry(question, {
          ...required,
          ...(question.required?.at && { at: '2030-01-01T00:00:00Z' }),
          since: '2030-01-01T00:00:00Z',
          until: '2031-01-01T00:00:00Z',
          asset: ASSET,
        }),
      );
      expect(JSON.parse(everything).rowCount).toBeGreaterThan(0);
      expect(JSON.parse(everything)).toMatchSnapshot();
      expect(JSON.parse(nothing).rowCount).toBe(
        // What a question of all time counts does not begin at `since`.
        question.isOfAllTime === true
          ? JSON.parse(everything).rowCount
          : Number(question.parameters.length === 0),
      );
    },
  );
});
