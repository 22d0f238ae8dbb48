/**
 * SQL from the console: real statements in real processes over a real lake, and what none
 * of them may do.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type CommandProcesses,
  openCommandProcesses,
} from '../../../src/api/console/command-processes.ts';
import {
  openQueryRunner,
  type QueryRunner,
} from '../../../src/api/console/lake-queries.ts';
import { openConsoleLake } from '../../../src/app/serving/console-lake.ts';
import { readConfig } from '../../../src/config/environment.ts';
import { type Sandbox, startSandbox } from '../../support/sandbox.ts';
import { text } from 'node:stream/consumers';
import { Child, isProcessAlive } from '../../support/process.ts';
import { waitFor } from '../../support/wait-for.ts';
import { freshDatabase } from '../../support/database.ts';
import { openHome, type MirrorHome } from '../../cli/mirror-home.ts';

const SOURCES = new URL('../../../src', import.meta.url).href;
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
  await desks.disposeAsync();
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

/** Ends the processes of all desks that the tests open. */
const desks = new AsyncDisposableStack();

function desk(): ReturnType<typeof openConsoleLake> {
  return desks.use(
    openConsoleLake(
      readConfig({ env: { DATA_DIR: home.dataDir }, cwd: home.dir }),
    ),
  );
}

/** Runs files by this script, which gets the arguments of `ledger-mirror`. */
function fileRunner(script: string): QueryRunner {
  const command = [process.execPath, '-e', script, '--'] as const;
  return openQueryRunner({
    command,
    processes: { run: unused, [Symbol.asyncDispose]: unused },
    env: {},
    scratchDir: home.dir,
  });
}

/** Runs statements by these processes. */
function answerRunner(processes: CommandProcesses): QueryRunner {
  const command = ['false'] as const;
  return openQueryRunner({ command, processes, env: {}, scratchDir: home.dir });
}

async function unused(): Promise<never> {
  throw new Error('a file has a process of its own');
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

  test('cuts an answer whose row is larger than the limit, before it reaches the server', async () => {
    const { rows, isCut } = await desk().ask(
      { sql: `select repeat('x', 100000000) as row` },
      signal,
    );
    expect([rows.length, isCut]).toEqual([0, true]);
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
    for (const written of ['', 'a\n1\n', 'a\n1\n2']) {
      const script = `process.stdout.write(${JSON.stringify(written)}, () => process.kill(process.pid, 'SIGKILL'))`;
      const whole = async (): Promise<string> =>
        text(await fileRunner(script).file({ sql: 'select 1' }, 'csv', signal));
      await expect(whole()).rejects.toMatchObject({
        statusCode: 400,
        message: expect.stringContaining('the statement was ended') as unknown,
      });
    }
  });

  test('tells that a statement was ended whose process was killed before it answered', async () => {
    await using processes = openCommandProcesses({
      command: [
        process.execPath,
        '-e',
        `process.on('message', () => process.kill(process.pid, 'SIGKILL'))`,
      ],
      env: {},
      timeoutMs: 60_000,
    });
    const asked = answerRunner(processes).ask({ sql: 'select 1' }, signal);
    await expect(asked).rejects.toMatchObject({
      statusCode: 400,
      message: 'the statement was ended',
    });
  });

  test('a file whose statement fails after its first bytes does not end as if it were whole', async () => {
    const script = `process.stdout.write('a\\n1\\n', () => process.exit(1))`;
    const runner = fileRunner(script);
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
    const runner = fileRunner(script);
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
    const runner = fileRunner(script);
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
    await using processes = openCommandProcesses({
      command: ['sleep', '30'],
      env: { PATH: '/usr/bin:/bin' },
      timeoutMs: 60_000,
    });
    const runner = answerRunner(processes);
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

describe('questions that one process answers one after another', () => {
  const STATE = `
    select 'setting' as kind, name, value from duckdb_settings()
    where name not in ('temp_directory', 'allowed_directories', 'allowed_paths')
    union all select 'table', table_name, database_name from duckdb_tables()
    union all select 'view', view_name, sql from duckdb_views() where not internal
    union all select 'database', database_name, path from duckdb_databases()
    union all select 'variable', name, value::varchar from duckdb_variables()
    union all select 'secret', name, secret_string from duckdb_secrets()
    order by all`;

  test('each has an engine of its own, in the same state as the first', async () => {
    const lake = desk();
    const first = await lake.ask({ sql: STATE }, signal);
    expect(first.rows.length).toBeGreaterThan(100);
    const folders = new Set<unknown>();
    for (let round = 0; round < 3; round += 1) {
      await lake.ask({ sql: 'select setseed(0.5)' }, signal);
      await lake.ask({ sql: 'select * from range(10000000)' }, signal);
      const { rows } = await lake.ask(
        { sql: `select current_setting('temp_directory') as folder` },
        signal,
      );
      folders.add(rows[0]?.['folder']);
    }
    expect(folders.size).toBe(3);
    const last = await lake.ask({ sql: STATE }, signal);
    expect(last.rows).toEqual(first.rows);
  });

  test('a seed that a question sets is not that of the next', async () => {
    const lake = desk();
    const numbers = new Set<unknown>();
    for (let round = 0; round < 2; round += 1) {
      await lake.ask({ sql: 'select setseed(0.5)' }, signal);
      const { rows } = await lake.ask({ sql: 'select random() as n' }, signal);
      numbers.add(rows[0]?.['n']);
    }
    expect(numbers.size).toBe(2);
  });

  test('a question reads no file of the one before', async () => {
    const lake = desk();
    const sql =
      `select current_setting('allowed_paths')[1] as path, ` +
      '(select count(*) from ledger_entries) as n';
    const { rows } = await lake.ask({ sql }, signal);
    const file = rows[0]?.['path'];
    expect(file).toMatch(/\.parquet$/);
    const stolen = `select count(*) from read_parquet('${String(file)}')`;
    const withTable = `${stolen} where (select count(*) from ledger_entries) > 0`;
    expect((await lake.ask({ sql: withTable }, signal)).rows).toHaveLength(1);
    await expect(lake.ask({ sql: stolen }, signal)).rejects.toMatchObject({
      message: expect.stringMatching(/permission|disabled/i) as unknown,
    });
  });

  test('a question sees the version of the lake that was just published', async () => {
    const lake = desk();
    const count = { sql: 'select count(*) as n from ledger_entries' };
    const before = await lake.ask(count, signal);
    sandbox.advance(7 * 86_400_000);
    const { code, stderr } = await home.run(['nightly']);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    const after = await lake.ask(count, signal);
    const fresh = await desk().ask(count, signal);
    expect(after.rows).toEqual(fresh.rows);
    expect(Number(after.rows[0]?.['n'])).toBeGreaterThan(
      Number(before.rows[0]?.['n']),
    );
  });

  test('no process stays behind when the one that asks is killed with -9', async () => {
    const script = `
      import { readFileSync } from 'node:fs';
      import { openConsoleLake } from '${SOURCES}/app/serving/console-lake.ts';
      import { readConfig } from '${SOURCES}/config/environment.ts';
      const config = readConfig({ env: { DATA_DIR: process.argv[1] }, cwd: '/' });
      const { signal } = new AbortController();
      const lake = openConsoleLake(config);
      await lake.ask({ sql: 'select 1' }, signal);
      const tasks = '/proc/self/task/' + process.pid + '/children';
      const kept = readFileSync(tasks, 'utf8').trim();
      const sql = 'select count(*) from range(1000000000000)';
      const asked = lake.ask({ sql }, signal);
      setImmediate(() => console.log('kept ' + kept + '.'));
      await asked;`;
    await using asking = new Child(process.execPath, [
      '--input-type=module',
      '-e',
      script,
      home.dataDir,
    ]);
    const [, kept] = await asking.waitForLine(/kept (\d+)\./);
    await asking.end('SIGKILL');
    await waitFor(async () => !(await isProcessAlive(Number(kept))), {
      what: 'the end of the kept process, which is still answering',
    });
    expect(await isProcessAlive(Number(kept))).toBe(false);
  });

  test('serve ends its processes, the idle one as well as the one that is answering', async () => {
    const serve = home.start(['serve'], { API_PORT: '0' });
    const [, url] = await waitFor(
      () => /"url":"(http[^"]+)"[^\n]*"msg":"Serving"/.exec(serve.stderr),
      { what: 'the API' },
    );
    const ask = async (sql: string): Promise<Response> =>
      fetch(`${url}/console/query`, {
        method: 'POST',
        body: JSON.stringify({ sql }),
        headers: { 'content-type': 'application/json' },
      });
    const endless = Promise.allSettled([
      ask('select count(*) from range(1000000000000)'),
    ]);
    const pids = await waitFor(
      async () => {
        expect((await ask('select 1')).status).toBe(200);
        const tasks = `/proc/${serve.pid}/task/${serve.pid}/children`;
        const children = (await readFile(tasks, 'utf8')).trim().split(' ');
        return children.length === 2 ? children.map(Number) : undefined;
      },
      { what: 'a process that answers, and an idle one' },
    );
    expect(await serve.end('SIGTERM')).toEqual({ code: 0, signal: null });
    for (const pid of pids) expect(await isProcessAlive(pid)).toBe(false);
    const [cut] = await endless;
    expect(cut.status).toBe('rejected');
  });
});
