/**
 * The commands of the pages, typed into a shell as they stand there, in a folder with a
 * mirror that needs no setting.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, readFile, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DAY_MICROS, floorSecond, nowMicros } from '../../src/time/time.ts';
import { type Sandbox, startSandbox } from '../support/sandbox.ts';
import { type Child } from '../support/process.ts';
import { waitFor } from '../support/wait-for.ts';
import { openHome, type MirrorHome } from '../cli/mirror-home.ts';
import { blocksOf, commandsOf, PAGES, readPage, ROOT } from './pages.ts';

/**
 * Commands that need more than Node and npm, or never end, and what runs them instead.
 */
const ELSEWHERE: readonly (readonly [command: RegExp, by: string])[] = [
  [/^(npm ci && )?npm (run demo|test)/, 'test/cli/faults/demo.fault.test.ts'],
  [/npm start$/, 'test/cli/commands/up.int.test.ts'],
  [
    /^npm run package|^npm install --global|^(SOURCE_URL=\S+ )?ledger-mirror /,
    'npm run test:package',
  ],
  [/^docker |^cp \.env\.example /, 'npm run test:image'],
  [
    /^(helm|kubectl) |^(cp|install|systemctl) .*(systemd|ledger-mirror)/,
    'npm run test:deploy',
  ],
  [/^curl .*\/download"$/, 'test/api/mirror/download.int.test.ts'],
  [
    /^python3 (check_ledger|ledger_digest)|^cd checklog|^go run /,
    'npm run test:tools',
  ],
  // Its plan and its table are tested; a whole run takes ten minutes of quiet cores.
  [/^npm run bench -- all/, 'test/bench/summary.test.ts'],
  [/dbt/, 'npm run test:dbt'],
  [/psql/, 'npm run test:clients'],
];
/** Makes the mirror that the other pages ask. */
const FIRST = 'docs/guides/first-network.md';
/** Takes mirrors apart: drills.int.test.ts types it, section by section. */
const DRILLS = 'docs/guides/restore.md';
const OTHERS = PAGES.filter(
  (page) => page !== FIRST && page !== DRILLS && page !== 'CONTRIBUTING.md',
);

let sandbox: Sandbox;
let home: MirrorHome;
let serve: Child;
let database: Client;
let PARTY = '';

/**
 * The blocks of a page as they are typed here: the example's source is the sandbox, the
 * demo's mirror is this one.
 */
function scriptsOf(page: string): string[] {
  return blocksOf(page, 'sh')
    .map((block) =>
      commandsOf(block).filter(
        (line) => !ELSEWHERE.some(([command]) => command.test(line)),
      ),
    )
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.join('\n'));
}

async function type(script: string): Promise<void> {
  const typed = script
    .replaceAll('https://ledger.example.com', sandbox.url)
    .replaceAll('DATA_DIR=data/demo', 'DATA_DIR=data');
  const { code, stderr } = await home.type(typed, {
    PARTY: PARTY.slice(0, 8),
    ASSET: await anyAsset(),
  });
  expect({ code, told: code === 0 ? '' : stderr.slice(-900) }).toEqual({
    code: 0,
    told: '',
  });
}

/** The id of an asset that is mirrored; empty before anything is. */
async function anyAsset(): Promise<string> {
  const { rows } = await database.query<{ asset: string }>(
    'select asset_id as asset from mirror.ledger_entries limit 1',
  );
  return rows[0]?.asset ?? '';
}

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 6,
    entriesMean: 40,
    rateLimit: 'none',
    clock: nowMicros,
    genesis: floorSecond(nowMicros()) - 7n * DAY_MICROS,
  });
  home = await openHome({
    SOURCE_URL: sandbox.url,
    DATA_DIR: undefined,
    API_PORT: '0',
  });
  const ledgers = [...sandbox.truth.parties()].map(({ id }) => ({
    id,
    ...sandbox.truth.party(id),
  }));
  PARTY = ledgers.toSorted((a, b) => b.entries - a.entries)[0]?.id ?? '';
  // As `npm ci` leaves it.
  await mkdir(join(home.dir, 'node_modules/.bin'), { recursive: true });
  await symlink(
    join(ROOT, 'bin/ledger-mirror.js'),
    join(home.dir, 'node_modules/.bin/ledger-mirror'),
  );
  serve = home.start(['serve']);
  await waitFor(() => serve.stderr.includes('"Serving"'), {
    what: 'the embedded Postgres',
  });
  database = new Client({ ...(await toldAddress()), user: 'ledger_mirror' });
  await database.connect();
});

afterAll(async () => {
  // Killed, it would leave its Postgres behind.
  if (serve.isRunning) await endServe();
  await home[Symbol.asyncDispose]();
  await sandbox.stop();
});

/** Its Postgres ends with it, and with that a connection that is still open. */
async function endServe() {
  await database.end();
  return serve.end('SIGTERM');
}

/** Where `doctor` says that the database is. */
async function toldAddress(): Promise<{
  host: string;
  port: number;
  database: string;
  password: string;
}> {
  const { stdout } = await home.run(['doctor']);
  const [, host = '', port, name = '', file = ''] =
    /embedded, at ([\d.]+):(\d+) .*\(database (\w+), user ledger_mirror, password in (.*)\), Postgres/.exec(
      stdout,
    ) ?? [];
  return {
    host,
    port: Number(port),
    database: name,
    password: await readFile(file, 'utf8'),
  };
}

describe.each([FIRST, ...OTHERS].filter((page) => scriptsOf(page).length > 0))(
  'the page %s',
  (page) => {
    test.each(scriptsOf(page))('%s', type);
  },
);

describe('sql-clients.md', () => {
  test('makes a login that reads the views and changes nothing', async () => {
    const [statement = ''] = blocksOf('docs/guides/sql-clients.md', 'sql');
    await database.query(statement);
    const analyst = new Client({
      ...(await toldAddress()),
      user: 'analyst',
      password: 'choose one',
    });
    await analyst.connect();
    const { rows } = await analyst.query<{ n: number }>(
      'select count(*)::int as n from mirror.entries',
    );
    expect(rows[0]?.n).toBeGreaterThan(0);
    await expect(
      analyst.query('delete from mirror.ledger_entries'),
    ).rejects.toThrow('permission denied');
    await analyst.end();
  });
});

describe('lake.md', () => {
  test('says which rows count as the lake itself does', async () => {
    const [statement = ''] = blocksOf('docs/lake.md', 'sql');
    const counted = await home.json([
      'query',
      `select count(*) as n from (${statement.replace(/;\s*$/, '')})`,
    ]);
    const marked = await home.json([
      'query',
      'select count(*) as n from ledger_entries where is_counted',
    ]);
    expect([counted.code, counted.document['rows']]).toEqual([
      0,
      marked.document['rows'],
    ]);
  });
});

/**
 * The files that the table's log names now: the extension that reads such a log comes
 * over the network.
 */
async function liveFiles(table: string): Promise<string[]> {
  const live = new Set<string>();
  for (const name of readdirSync(join(table, '_delta_log')).toSorted()) {
    if (!name.endsWith('.json')) continue;
    for (const line of readFileSync(
      join(table, '_delta_log', name),
      'utf8',
    ).split('\n')) {
      const { add, remove } = JSON.parse(line || '{}') as Record<
        string,
        { path: string } | undefined
      >;
      if (add !== undefined)
        live.add(join(table, decodeURIComponent(add.path)));
      if (remove !== undefined)
        live.delete(join(table, decodeURIComponent(remove.path)));
    }
  }
  return [...live];
}

describe('check-us.md', () => {
  test('the statement for DuckDB says of the lake what the one for Postgres says of the tables', async () => {
    const page = readPage('docs/guides/check-us.md');
    const [, ofTables = ''] = /## The lake.*?`(select .*?)`/s.exec(page) ?? [];
    const [, ofLake = ''] = /## The lake.*?```sql\n(.*?)```/s.exec(page) ?? [];
    const files = (
      await liveFiles(join(home.dir, 'data/objects/lake/ledger_entries'))
    ).map((path) => `'${path}'`);
    const scan = /delta_scan\('[^']*'\)/;
    expect(ofLake).toMatch(scan);
    const statement = ofLake
      .replace('install delta; load delta;', '')
      .replace(scan, `read_parquet([${files.join()}])`);
    await using engine = new AsyncDisposableStack();
    const duckdb = engine.adopt(await DuckDBInstance.create(), async (one) =>
      one.closeSync(),
    );
    const found = await (await duckdb.connect()).runAndReadAll(statement);
    const { rows } = await database.query<Record<string, unknown>>(ofTables);
    expect(rows.length).toBeGreaterThan(0);
    expect(found.getRows().map((row) => row.map(String))).toEqual(
      rows.map((row) => Object.values(row).map(String)),
    );
  });

  test('the statement that checks the tables finds nothing, and a row that is gone', async () => {
    const page = readPage('docs/guides/check-us.md');
    const [, statement = ''] =
      /## The tables, with Postgres.*?```sql\n(.*?)```/s.exec(page) ?? [];
    expect((await database.query(statement)).rows).toEqual([]);
    await database.query('begin');
    await database.query(
      `delete from mirror.ledger_entries where ctid = any (array(select ctid from mirror.ledger_entries limit 1))`,
    );
    expect((await database.query(statement)).rows).toHaveLength(1);
    await database.query('rollback');
  });
});

describe('what is run elsewhere', () => {
  const { scripts } = JSON.parse(
    readFileSync(join(ROOT, 'package.json'), 'utf8'),
  ) as {
    scripts: Record<string, string>;
  };
  const commands = PAGES.flatMap((page) => blocksOf(page, 'sh')).flatMap(
    (block) => commandsOf(block),
  );

  test.each(ELSEWHERE)(
    '%s stands on a page, and is run by %s',
    (command, by) => {
      expect(commands.some((line) => command.test(line))).toBe(true);
      const [, script = ''] = /^npm run (\S+)/.exec(by) ?? [];
      expect(existsSync(join(ROOT, by)) || scripts[script] !== undefined).toBe(
        true,
      );
    },
  );
});

test('the process that serves ends in 0 when it is told to stop', async () => {
  expect(await endServe()).toEqual({ code: 0, signal: null });
});
