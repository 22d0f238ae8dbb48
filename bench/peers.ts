/**
 * Compares ledger-mirror with its peers: dlt, DuckDB, the Singer SDK and PyAirbyte, which
 * are pinned in environments of their own. All take turns on the same source and the same
 * Postgres. `npm run bench -- peers [--quick]` prints the tables of bench/README.md.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { openWarehouse } from '../src/postgres/database.ts';
import { migrate } from '../src/postgres/migrate.ts';
import { ROOT } from '../scripts/steps.ts';
import { openVenv } from '../scripts/venv.ts';
import { startSource } from './world/lists-bench.ts';
import { type Fault, FAULTS, startFaulty } from './peers/faults.ts';
import { median, openScratch } from './world/scratch-world.ts';

const PACKAGES = [
  'dlt[postgres,parquet]==1.31.0',
  'duckdb==1.5.5',
  'singer-sdk==0.54.9',
];
/** PyAirbyte needs other versions of what the others need, hence its own environment. */
const AIRBYTE_PACKAGES = ['airbyte==0.71.3'];
const isQuick = process.argv.includes('--quick');
const PARTIES = isQuick ? 50_000 : 200_000;
const FAULTY_PARTIES = 20_000;
const MEGABYTES = isQuick ? 100 : 500;
const ROUNDS = isQuick ? 1 : 3;
/**
 * A peer that takes longer than this counts as never ending. On two quiet cores, none
 * needs half of it.
 */
const ENDLESS_MS = 90_000;

interface Ended {
  readonly seconds: number;
  readonly peakMb: number;
  /** The command's exit code; undefined if it did not end by itself. */
  readonly code: number | undefined;
  readonly said: string;
}

await using stack = new AsyncDisposableStack();
const { folder, connectionString } = await openScratch(stack);
const venv = await openVenv('peers', PACKAGES);
if ('missing' in venv)
  process.stdout.write(
    `not run: the peers cannot be installed: ${venv.missing}\n`,
  );
const python = 'bin' in venv ? join(venv.bin, 'python') : undefined;
const airbyteVenv = await openVenv('pyairbyte', AIRBYTE_PACKAGES);
if ('missing' in airbyteVenv)
  process.stdout.write(
    `not run: PyAirbyte cannot be installed: ${airbyteVenv.missing}\n`,
  );
const airbytePython =
  'bin' in airbyteVenv ? join(airbyteVenv.bin, 'python') : undefined;
const admin = stack.use(
  openWarehouse({ url: connectionString, onIdleError: () => undefined }),
);
let databases = 0;

/**
 * Runs a command in a process that measures it, and prints its peak memory in kB and its
 * exit code after all other output.
 */
async function timed(
  command: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Ended> {
  const measure = `import os, resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(f"peak {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss} code {code}")`;
  const startMs = performance.now();
  const child = spawn('python3', ['-c', measure, ...command], {
    cwd: ROOT,
    env: { ...process.env, PATH: `${folder}:${process.env['PATH']}`, ...env },
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const limit = setTimeout(
    () => process.kill(-(child.pid ?? 0), 'SIGKILL'),
    ENDLESS_MS,
  );
  await once(child, 'close');
  clearTimeout(limit);
  const seconds = (performance.now() - startMs) / 1000;
  const [, peak, code] = /peak (\d+) code (-?\d+)/.exec(said) ?? [];
  return {
    seconds,
    peakMb: Number(peak ?? 0) / 1024,
    code: code === undefined ? undefined : Number(code),
    said,
  };
}

const peer = (script: string, ...args: readonly string[]): string[] => [
  python ?? 'python3',
  join(ROOT, 'bench/peers', script),
  ...args,
];
const ours = (...args: readonly string[]): string[] => [
  process.execPath,
  join(ROOT, 'bin/ledger-mirror.js'),
  ...args,
];
const oursEnv = (url: string, database: string): Record<string, string> => ({
  SOURCE_URL: url,
  SOURCE_RATE: '1000',
  DATABASE_URL: database,
  DATA_DIR: join(folder, 'ours'),
  OBJECT_STORE_URL: `file://${join(folder, 'ours')}`,
  LOG_LEVEL: 'silent',
});

/**
 * The peers by name. Those that read a list get a source; those that export get the URL
 * of a CSV.
 */
const LISTS: Readonly<Record<string, (url: string) => Promise<Ended>>> = {
  'ledger-mirror → Postgres': async (url) => {
    const database = await emptyDatabase();
    const ended = await timed(
      ours('sync', 'parties', '--json', '--quiet'),
      oursEnv(url, database),
    );
    await using warehouse = openWarehouse({
      url: database,
      onIdleError: () => undefined,
    });
    const { rows } = await warehouse.pool.query<{ count: string }>(
      'select count(*)::text as count from mirror.parties',
    );
    const [, verdict] = /"verdict":\s*"(\w+)"/.exec(ended.said) ?? [];
    return {
      ...ended,
      said: `rows ${rows[0]?.count}, ${verdict ?? 'no verdict'}`,
    };
  },
  'dlt → Postgres': async (url) => {
    const at = await fresh('dlt');
    return timed(peer('dlt_lists.py', url, connectionString, at));
  },
  'Singer SDK → file': async (url) =>
    timed(peer('singer_lists.py', url, await fresh('singer'))),
  ...(airbytePython !== undefined && {
    'PyAirbyte → Postgres': async (url: string) =>
      timed([
        airbytePython,
        join(ROOT, 'bench/peers/pyairbyte_lists.py'),
        url,
        connectionString,
        await fresh('pyairbyte'),
      ]),
  }),
};

/** Creates a migrated database, without data from an earlier run. */
async function emptyDatabase(): Promise<string> {
  databases += 1;
  await admin.pool.query(`create database peers_${databases}`);
  const url = new URL(connectionString);
  url.pathname = `/peers_${databases}`;
  await using warehouse = openWarehouse({
    url: url.href,
    onIdleError: () => undefined,
  });
  await migrate(warehouse.db);
  return url.href;
}

async function fresh(name: string): Promise<string> {
  const path = join(folder, name);
  await rm(path, { recursive: true, force: true });
  await mkdir(path, { recursive: true });
  return path;
}

function row(...cells: readonly (string | number)[]): void {
  process.stdout.write(`| ${cells.join(' | ')} |\n`);
}

function head(...cells: readonly string[]): void {
  process.stdout.write('\n');
  row(...cells);
  row(...cells.map(() => '---'));
}

/** Runs the peers in turns, so that a slow minute affects all of them alike. */
async function inTurns(
  runners: Readonly<Record<string, () => Promise<Ended>>>,
): Promise<void> {
  const results = new Map<string, Ended[]>(
    Object.keys(runners).map((name) => [name, []]),
  );
  for (let round = 0; round < ROUNDS; round += 1)
    for (const [name, run] of Object.entries(runners))
      results.get(name)?.push(await run());
  const [[, first = []] = []] = results;
  for (const [name, ended] of results) {
    const ratio = median(
      ended.map(
        ({ seconds }, round) => seconds / (first[round]?.seconds ?? Number.NaN),
      ),
    );
    const last = ended.at(-1);
    row(
      name,
      median(ended.map(({ seconds }) => seconds)).toFixed(1),
      ratio.toFixed(2),
      `${Math.max(...ended.map(({ peakMb }) => peakMb)).toFixed(0)} MB`,
      resultOf(last),
    );
  }
}

function resultOf(ended: Ended | undefined): string {
  if (ended?.code === undefined) return 'no end';
  // PyAirbyte logs to standard output, in JSON.
  const said = ended.said
    .replace(/peak.*/s, '')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('{'))
    .join(', ');
  return `${said === '' ? 'nothing' : said}, exit ${ended.code}`;
}

const runners = Object.entries(LISTS).filter(
  ([name]) => python !== undefined || name.startsWith('ledger-mirror'),
);
{
  await using source = await startSource(PARTIES, 0);
  head(
    `${PARTIES} parties, start-up included`,
    'seconds',
    '÷ ours',
    'memory',
    'result',
  );
  await inTurns(
    Object.fromEntries(
      runners.map(([name, run]) => [name, () => run(source.url.href)]),
    ),
  );
}
{
  await using source = await startSource(FAULTY_PARTIES, 0);
  head(`${FAULTY_PARTIES} parties, page 5`, ...runners.map(([name]) => name));
  for (const fault of FAULTS)
    row(fault, ...(await withFault(source.url, fault)));
}
if (python !== undefined) {
  const server = spawn(
    process.execPath,
    [join(ROOT, 'bench/export/server.ts')],
    {
      stdio: ['pipe', 'pipe', 'inherit'],
    },
  );
  const lines = createInterface({ input: server.stdout })[
    Symbol.asyncIterator
  ]();
  const { value: base } = await lines.next();
  const url = `${String(base)}/csv/${MEGABYTES}`;
  head(
    `${MEGABYTES} MB of CSV from a static server`,
    'seconds',
    '÷ ours',
    'memory',
    'result',
  );
  await inTurns({
    'ledger-mirror → zstd, each row checked and summed': async () => {
      const args = [
        String(base),
        `/csv/${MEGABYTES}`,
        await emptyDatabase(),
        await fresh('export'),
        'zstd',
      ];
      const ended = await timed([
        process.execPath,
        '--max-semi-space-size=4',
        join(ROOT, 'bench/export/worker.ts'),
        ...args,
      ]);
      const [, rows] = /"rows":(\d+)/.exec(ended.said) ?? [];
      return { ...ended, said: `rows ${rows}, balance exact` };
    },
    'dlt → Parquet': async () =>
      timed(peer('dlt_export.py', url, await fresh('dlt-export'))),
    'curl and DuckDB → Parquet': async () => {
      const script = join(ROOT, 'bench/peers/duckdb_export.py');
      return timed([
        'sh',
        '-c',
        `curl -s '${url}' | '${python}' '${script}' '${await fresh('duckdb')}'`,
      ]);
    },
  });
  server.stdin.end();
  await once(server, 'exit');
}

async function withFault(upstream: URL, fault: Fault): Promise<string[]> {
  const cells: string[] = [];
  for (const [, run] of runners) {
    await using faulty = await startFaulty(upstream, fault);
    const ended = await run(faulty.url);
    cells.push(`${resultOf(ended)}, ${faulty.requests()} requests`);
  }
  return cells;
}
