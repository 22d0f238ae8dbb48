/**
 * SQL from the console: real statements in real processes over a real lake, and what none
 * of them may do.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openQueryRunner } from '../../../src/api/console/lake-queries.ts';
import { openConsoleLake } from '../../../src/app/serving/console-lake.ts';
import { readConfig } from '../../../src/config/environment.ts';
import { type Sandbox, startSandbox } from '../../support/sandbox.ts';
import { text } from 'node:stream/consumers';
import { waitFor } from '../../support/wait-for.ts';
import { freshDatabase } from '../../support/database.ts';
import { openHome, type MirrorHome } from '../../cli/mirror-home.ts';

const database = await freshDatabase();
const { signal } = new AbortController();
let sandbox: Sandbox;
let home: MirrorHome;

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 5,
    entriesMean: 40,
    rateLimit: 'none',
  });
  home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: database.url,
  });
  const { code, stderr } = await home.run(['nightly']);
  if (code !== 0) throw new Error(stderr);
});

afterAll(async () => {
  await home[Symbol.asyncDispose]();
  await sandbox.stop();
});

interface LakeTable {
  readonly name: string;
  readonly rows: string;
  readonly columns: readonly {
    readonly name: string;
    readonly comment: string;
  }[];
  readonly access: readonly { readonly engine: string }[];
}

function desk(): ReturnType<typeof openConsoleLake> {
  return openConsoleLake(
    readConfig({ env: { DATA_DIR: home.dataDir }, cwd: home.dir }),
  );
}

describe('the Data view', () => {
  test('shows every table with its columns, and how to read it from elsewhere', async () => {
    const tables = (await desk().tables()) as LakeTable[];
    const entries = tables.find(({ name }) => name === 'ledger_entries');
    expect(
      entries?.columns.find(({ name }) => name === 'quantity')?.comment,
    ).toMatch(/\w/);
    expect(entries?.access.map(({ engine }) => engine)).toEqual([
      'DuckDB',
      'Python',
      'Spark',
      'psql',
    ]);
    const { rows } = await desk().ask(
      { sql: 'select count(*) as n from ledger_entries' },
      signal,
    );
    expect(entries?.rows).toBe(String(rows[0]?.['n']));
  });

  test('reads the tables once for all who look', async () => {
    const lake = desk();
    const before = await lake.tables();
    expect(await lake.tables()).toBe(before);
  });

  test('answers SQL exactly, and a ready question with its options', async () => {
    const { rows, isCut } = await desk().ask(
      {
        sql: "select 170141183460469231731687303715884105727::hugeint as big, 'a' as word",
      },
      signal,
    );
    expect({ rows, isCut }).toEqual({
      rows: [{ big: '170141183460469231731687303715884105727', word: 'a' }],
      isCut: false,
    });
    const asset = sandbox.truth.assetIds()[0] ?? '';
    const flows = await desk().ask(
      { question: 'daily-flows', options: { asset } },
      signal,
    );
    expect(new Set(flows.rows.map((row) => row['asset_id']))).toEqual(
      new Set([asset]),
    );
  });

  test('cuts an answer that has no end', async () => {
    const { rows, isCut } = await desk().ask(
      { sql: 'select * from range(10000000)' },
      signal,
    );
    expect([rows.length, isCut]).toEqual([5_000, true]);
  });

  test('downloads what it shows as CSV and as Parquet', async () => {
    const question = { sql: 'select party_id from parties order by 1' };
    const csv = await text(await desk().file(question, 'csv', signal));
    expect(csv.trimEnd().split('\n')[0]).toBe('party_id');
    const parquet = await desk().file(question, 'parquet', signal);
    expect((await text(parquet)).startsWith('PAR1')).toBe(true);
  });

  test.each([
    ['a statement that is wrong', 'select from where', /SQL: /],
    [
      'a statement that writes',
      "copy (select 1) to '/tmp/written-by-a-console'",
      /SQL: /,
    ],
    [
      'a file outside',
      "select * from read_text('/etc/passwd')",
      /SQL: |Cannot /,
    ],
    ['the environment of the process', "select getenv('HOME')", /SQL: /],
    [
      'a setting of the process',
      "set memory_limit = '100GB'",
      /only reading is allowed/,
    ],
    [
      'a table by half of its name',
      'select * from checkpoint',
      /there is no table checkpoint; did you mean checkpoints\?/,
    ],
    [
      'an option in the place of SQL',
      '--output=/tmp/written-by-a-console',
      /SQL: /,
    ],
  ])('refuses %s, and says why', async (_, sql, why) => {
    await expect(desk().ask({ sql }, signal)).rejects.toMatchObject({
      statusCode: 400,
      message: expect.stringMatching(why),
    });
  });

  test('names the field whose value it refuses, not an option of the command line', async () => {
    const question = {
      question: 'top-parties',
      options: { since: '20.11.2026', asset: 'zz' },
    };
    await expect(desk().ask(question, signal)).rejects.toMatchObject({
      message: expect.stringMatching(
        /^since: "20\.11\.2026" is not a time that can be read; /,
      ),
    });
  });

  test('tells that a statement was ended, wherever in a row its process was killed', async () => {
    for (const written of ['', '{"a": 1}\n', '{"a": 1}\n{"a']) {
      const script = `process.stdout.write(${JSON.stringify(written)}, () => process.kill(process.pid, 'SIGKILL'))`;
      const runner = openQueryRunner(
        [process.execPath, '-e', script, '--'],
        {},
        home.dir,
      );
      await expect(
        runner.ask({ sql: 'select 1' }, signal),
      ).rejects.toMatchObject({
        statusCode: 400,
        message: expect.stringContaining('the statement was ended') as unknown,
      });
    }
  });

  test('a file whose statement fails after its first bytes does not end as if it were whole', async () => {
    const script = `process.stdout.write('a\\n1\\n', () => process.exit(1))`;
    const runner = openQueryRunner(
      [process.execPath, '-e', script, '--'],
      {},
      home.dir,
    );
    const file = await runner.file({ sql: 'select 1' }, 'csv', signal);
    await expect(text(file)).rejects.toMatchObject({ statusCode: 400 });
  });

  test('a file whose statement fails is refused with the reason', async () => {
    const file = desk().file({ sql: 'select from where' }, 'csv', signal);
    await expect(file).rejects.toMatchObject({
      statusCode: 400,
      message: expect.stringContaining('SQL: '),
    });
  });

  test('a client that leaves ends its file, and makes room for others', async () => {
    const script = `const x = 'x'.repeat(65_536); const go = () => process.stdout.write(x, go); go()`;
    const runner = openQueryRunner(
      [process.execPath, '-e', script, '--'],
      {},
      home.dir,
    );
    let clients = 0;
    for (; clients < 20; clients += 1) {
      const gone = new AbortController();
      const file = await waitFor(
        () =>
          runner
            .file({ sql: 'select 1' }, 'csv', gone.signal)
            .catch(() => undefined),
        { what: `file ${clients}, which has no end` },
      );
      file.on('error', () => undefined);
      gone.abort();
      file.destroy();
    }
    // More than there is room for at a time.
    expect(clients).toBe(20);
  });

  test('files whose readers pause do not keep others from asking, and arrive whole', async () => {
    const bytes = 4_000_000;
    const script = `process.stdout.write('x'.repeat(${bytes}))`;
    const runner = openQueryRunner(
      [process.execPath, '-e', script, '--'],
      {},
      home.dir,
    );
    const question = { sql: 'select 1' };
    const files = [
      await runner.file(question, 'csv', signal),
      await runner.file(question, 'csv', signal),
    ];
    const third = await waitFor(
      () => runner.file(question, 'csv', signal).catch(() => undefined),
      { what: 'a third file' },
    );
    for (const file of [...files, third])
      expect(await text(file)).toHaveLength(bytes);
  });

  test('asks two statements at once, and tells a third to come again', async () => {
    const runner = openQueryRunner(
      ['sleep', '30'],
      { PATH: '/usr/bin:/bin' },
      home.dir,
    );
    const stop = new AbortController();
    const open = [1, 2].map(() => runner.ask({ sql: 'select 1' }, stop.signal));
    await expect(runner.ask({ sql: 'select 1' }, signal)).rejects.toMatchObject(
      {
        statusCode: 503,
      },
    );
    stop.abort();
    const ended = await Promise.allSettled(open);
    expect(ended.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });
});
