/** The commands that the guides show, run as they stand there, over a small mirror. */
import { readdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DAY_MICROS, floorSecond, nowMicros } from '../../src/core/time.ts';
import { type Sandbox, startSandbox } from '../../src/sandbox/http/server.ts';
import { freshDatabase } from '../support/database.ts';
import { openHome, type MirrorHome } from '../cli/mirror-home.ts';

const GUIDES = resolve(import.meta.dirname, '../../docs/guides');
const COMMAND = /^npx ledger-mirror (.*)$/;
const database = await freshDatabase();
let sandbox: Sandbox;
let home: MirrorHome;
let party = '';

/** Every command line in the `sh` blocks of a guide, in order. */
function commandsOf(guide: string): string[] {
  const page = readFileSync(join(GUIDES, guide), 'utf8').replaceAll(/^ {3}/gm, '');
  const blocks = [...page.matchAll(/^```sh\n(.*?)^```/gms)].map(([, block = '']) => block);
  return blocks
    .join('\n')
    .split('\n')
    .filter((line) => COMMAND.test(line));
}

/** The words of a line, quotes and `$PARTY` as a shell reads them; what follows a pipe is left to the shell. */
function wordsOf(line: string): string[] {
  const [, words = ''] = COMMAND.exec(line.split(' | ')[0] ?? '') ?? [];
  return [...words.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain = '']) =>
    (quoted ?? plain).replace('$PARTY', party),
  );
}

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 6,
    entriesMean: 40,
    rateLimit: 'none',
    clock: nowMicros,
    genesis: floorSecond(nowMicros()) - 7n * DAY_MICROS,
  });
  home = await openHome({ SOURCE_URL: sandbox.url, DATABASE_URL: database.url });
  const ledgers = [...sandbox.truth.parties()].map(({ id }) => ({ id, ...sandbox.truth.party(id) }));
  party = ledgers.toSorted((a, b) => b.entries - a.entries)[0]?.id ?? '';
  await writeFile(join(home.dir, '.env'), '');
});

afterAll(async () => {
  await home[Symbol.asyncDispose]();
  await sandbox.stop();
});

const guides = ['first-network.md', 'on-demand.md', 'verdicts.md', 'restore.md', 'warehouse.md'];

describe.each(guides)('the guide %s', (guide) => {
  const commands = commandsOf(guide);

  test('shows commands', () => {
    expect(commands.length).toBeGreaterThan(0);
  });

  test.each(commands)('%s ends as the guide says', async (line) => {
    const { code, stderr } = await home.run(wordsOf(line));
    expect({ code, told: code === 0 ? '' : stderr.slice(-600) }).toEqual({ code: 0, told: '' });
  });
});

/** The files that the table's log names now: the extension that reads such a log comes over the network. */
async function liveFiles(table: string): Promise<string[]> {
  const live = new Set<string>();
  for (const name of readdirSync(join(table, '_delta_log')).toSorted()) {
    if (!name.endsWith('.json')) continue;
    for (const line of readFileSync(join(table, '_delta_log', name), 'utf8').split('\n')) {
      const { add, remove } = JSON.parse(line || '{}') as Record<string, { path: string } | undefined>;
      if (add !== undefined) live.add(join(table, decodeURIComponent(add.path)));
      if (remove !== undefined) live.delete(join(table, decodeURIComponent(remove.path)));
    }
  }
  return [...live];
}

test('the statement for DuckDB says of the lake what the one for Postgres says of the tables', async () => {
  const page = readFileSync(join(GUIDES, 'check-us.md'), 'utf8');
  const [, ofTables = ''] = /## The lake.*?`(select .*?)`/s.exec(page) ?? [];
  const [, ofLake = ''] = /## The lake.*?```sql\n(.*?)```/s.exec(page) ?? [];
  const files = (await liveFiles(join(home.dataDir, 'objects/lake/ledger_entries'))).map(
    (path) => `'${path}'`,
  );
  const scan = /delta_scan\('[^']*'\)/;
  expect(ofLake).toMatch(scan);
  const statement = ofLake
    .replace('install delta; load delta;', '')
    .replace(scan, `read_parquet([${files.join()}])`);
  await using engine = new AsyncDisposableStack();
  const duckdb = engine.adopt(await DuckDBInstance.create(), async (one) => one.closeSync());
  const found = await (await duckdb.connect()).runAndReadAll(statement);
  const { rows } = await database.pool.query<Record<string, unknown>>(ofTables);
  expect(rows.length).toBeGreaterThan(0);
  expect(found.getRows().map((row) => row.map(String))).toEqual(
    rows.map((row) => Object.values(row).map(String)),
  );
});

test('the statement that checks the tables finds nothing, and a row that is gone', async () => {
  const page = readFileSync(join(GUIDES, 'check-us.md'), 'utf8');
  const [, statement = ''] = /## The tables, with Postgres.*?```sql\n(.*?)```/s.exec(page) ?? [];
  expect((await database.pool.query(statement)).rows).toEqual([]);
  await database.pool.query(
    `delete from mirror.ledger_entries where ctid = any (array(select ctid from mirror.ledger_entries limit 1))`,
  );
  expect((await database.pool.query(statement)).rows).toHaveLength(1);
});

test('every guide with commands is one of those that are run', () => {
  const withCommands = readdirSync(GUIDES).filter((guide) => commandsOf(guide).length > 0);
  expect(withCommands.toSorted()).toEqual(guides.toSorted());
});
