/**
 * Measures the speed of load and lake, as ratios within one run, and the speed of the
 * lake's answers: `npm run bench -- load [--quick] [copy] [lake] [questions]`. Everything
 * takes about ten minutes and 6 GB below the temporary folder; `lake` alone takes about a
 * minute.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { DuckDBInstance } from '@duckdb/node-api';
import { from as copyFrom, to as copyTo } from 'pg-copy-streams';
import { openFileStore } from '../src/storage/file-store.ts';
import {
  addToMonth,
  askQuestions,
  BenchWarehouse,
  fillMonth,
  makeLake,
} from './load/lake-questions.ts';
import { publishLedger } from './load/load-ledger.ts';
import {
  atLeast,
  atMost,
  below,
  say,
  sayNumber,
  type Target,
} from './world/report.ts';
import { PRODUCT_FLAGS } from './world/product-flags.ts';
import { median, openScratchWarehouse } from './world/scratch-world.ts';

const isQuick = process.argv.includes('--quick');
const chosen = process.argv.slice(2).filter((word) => !word.startsWith('--'));
const ROWS = isQuick ? 200_000 : 1_000_000;
const LAKE_ROWS = isQuick ? 1_000_000 : 10_000_000;
const SEGMENTS = 4;
/** Maximum duration of a night that appends to a large month. */
const NIGHT_SECONDS_MAX = 0.5;
const ROUNDS = isQuick ? 3 : 5;
const COLUMNS = `party_id, segment_id, extra, effect, vega_time, quantity, transfer_type, asset_id,
  account_from_market_id, account_from_party_id, account_from_account_type, account_from_balance,
  account_to_market_id, account_to_party_id, account_to_account_type, account_to_balance`;

interface Worked {
  readonly rows: number;
  /** How many of these rows the warehouse sent to the build of the lake. */
  readonly rowsSent: number;
  readonly seconds: number;
  /** CPU time of the worker's process. */
  readonly cpuSeconds: number;
  readonly peakMb: number;
}

async function seconds(measured: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await measured();
  return (performance.now() - startMs) / 1000;
}

await using stack = new AsyncDisposableStack();
const { folder, connectionString, warehouse } =
  await openScratchWarehouse(stack);
const { pool } = warehouse;
const objectsDir = join(folder, 'objects');
const canonicalPath = join(folder, 'canonical.copy');

async function work(stage: 'load' | 'lake' | 'both'): Promise<Worked> {
  const script = fileURLToPath(new URL('load/worker.ts', import.meta.url));
  const args = [
    script,
    stage,
    connectionString,
    objectsDir,
    join(folder, 'scratch'),
  ];
  const child = spawn(process.execPath, [...PRODUCT_FLAGS, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  await once(child, 'close');
  return JSON.parse(output) as Worked;
}

async function emptyTable(): Promise<void> {
  await pool.query('truncate mirror.ledger_entries, mirror.segment_months');
  await pool.query('update mirror.segments set loaded_at = null');
  await pool.query('checkpoint');
}

async function rawCopy(): Promise<void> {
  const client = await pool.connect();
  try {
    const copy = client.query(
      copyFrom(`copy mirror.ledger_entries (${COLUMNS}) from stdin`),
    );
    await pipeline(
      createReadStream(canonicalPath, { highWaterMark: 2 ** 18 }),
      copy,
    );
  } finally {
    client.release();
  }
}

async function keepCanonical(): Promise<void> {
  const client = await pool.connect();
  try {
    const copy = client.query(
      copyTo(`copy (select ${COLUMNS} from mirror.ledger_entries) to stdout`),
    );
    await pipeline(copy, createWriteStream(canonicalPath));
  } finally {
    client.release();
  }
}

/**
 * Writes the same objects as zstd Parquet with DuckDB alone, by month and with the lake's
 * types.
 */
async function duckDbAlone(keys: readonly string[]): Promise<void> {
  const instance = await DuckDBInstance.create(':memory:', { threads: '2' });
  const connection = await instance.connect();
  await connection.run(`set TimeZone = 'UTC'`);
  const amount = (name: string): string =>
    `cast(cast(${name} as hugeint) as decimal(38,0)) as ${name}`;
  const files = keys.map((key) => `'${join(objectsDir, key)}'`).join(', ');
  await connection.run(`copy (
    select cast(vega_time as timestamptz) as vega_time, ${amount('quantity')}, ${amount('effect')},
      replace(transfer_type, 'TRANSFER_TYPE_', '') as transfer_type, asset_id, account_from_market_id,
      account_from_party_id, account_from_account_type, ${amount('account_from_balance')}, account_to_market_id,
      account_to_party_id, account_to_account_type, ${amount('account_to_balance')}, vega_time[:7] as month
    from read_csv([${files}], header = true, all_varchar = true, delim = ',', quote = '"', escape = '"')
    order by vega_time)
    to '${join(folder, 'alone')}' (format parquet, compression zstd, partition_by (month), overwrite_or_ignore)`);
  connection.closeSync();
  instance.closeSync();
}

async function loading(): Promise<void> {
  const ours: number[] = [];
  const raw: number[] = [];
  const peaks: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await emptyTable();
    const worked = await work('load');
    ours.push(worked.seconds);
    peaks.push(worked.peakMb);
    if (round === 0) await keepCanonical();
    await emptyTable();
    raw.push(await seconds(rawCopy));
  }
  const ratios = ours.map((value, round) => (raw[round] ?? Number.NaN) / value);
  say(
    `${ROWS} entries, CSV → table with its indexes`,
    `${Math.round(ROWS / median(ours))} rows/s`,
  );
  say(
    'raw COPY of canonical rows into the same table',
    `${Math.round(ROWS / median(raw))} rows/s`,
  );
  sayRatios('load / raw COPY', ratios, atLeast(0.7, ', aim 0.9'));
  sayPeak('peak memory of the loader', peaks, 200);
}

/**
 * Measures load and lake together, and for comparison a COPY of canonical rows and
 * DuckDB's Parquet of the same objects.
 */
async function parquet(keys: readonly string[]): Promise<void> {
  const loads: number[] = [];
  const both: number[] = [];
  const alone: number[] = [];
  const raw: number[] = [];
  const cpuRatios: number[] = [];
  let rowsSent = 0;
  const peaks: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await emptyTable();
    const load = await work('load');
    loads.push(load.seconds);
    if (round === 0) await keepCanonical();
    await emptyTable();
    await rm(join(objectsDir, 'lake'), { recursive: true, force: true });
    const worked = await work('both');
    both.push(worked.seconds);
    rowsSent = Math.max(rowsSent, worked.rowsSent);
    peaks.push(worked.peakMb);
    const before = process.cpuUsage();
    alone.push(await seconds(() => duckDbAlone(keys)));
    const { user, system } = process.cpuUsage(before);
    cpuRatios.push(
      (user + system) / 1e6 / (worked.cpuSeconds - load.cpuSeconds),
    );
    await emptyTable();
    raw.push(await seconds(rawCopy));
  }
  const at = (values: readonly number[], round: number): number =>
    values[round] ?? Number.NaN;
  const lakeRatios = both.map(
    (value, round) => at(alone, round) / (value - at(loads, round)),
  );
  const together = both.map(
    (value, round) => value / (at(raw, round) + at(alone, round)),
  );
  say(
    `${ROWS} entries, load and lake`,
    `${Math.round(ROWS / median(both))} rows/s`,
  );
  say(
    'the same objects to Parquet by DuckDB alone',
    `${Math.round(ROWS / median(alone))} rows/s`,
  );
  sayRatios(
    'lake / DuckDB alone (what the lake adds to the load)',
    lakeRatios,
    atLeast(0.6),
  );
  say(
    'the same by processor seconds, which a busy machine tells as well',
    showRatios(cpuRatios),
  );
  sayRatios('load and lake / COPY and DuckDB alone', together, atMost(1.15));
  sayNumber(
    'rows that the warehouse sent to the build',
    rowsSent,
    `${rowsSent}`,
    atMost(0),
  );
  sayPeak('peak memory of load and lake in one process', peaks, 450);
}

async function questions(): Promise<void> {
  const objects = openFileStore(join(folder, 'questions'));
  const scratchDir = join(folder, 'scratch');
  const bench = new BenchWarehouse(join(folder, 'sent'));
  const built = await makeLake(bench, objects, scratchDir, LAKE_ROWS);
  const buildSeconds = built.reduce(
    (sum, { seconds: value }) => sum + value,
    0,
  );
  const ratios = built.map(
    ({ seconds: ours, aloneSeconds }) => aloneSeconds / ours,
  );
  say(
    `${LAKE_ROWS} entries into the lake, from rows that the warehouse sent`,
    `${Math.round(LAKE_ROWS / buildSeconds)} rows/s`,
  );
  sayRatios(
    'the same / DuckDB alone, unlimited, from the same rows',
    ratios,
    atLeast(0.6),
  );
  const taken = await askQuestions(objects, scratchDir, ROUNDS);
  for (const [name, values] of taken) {
    sayNumber(
      `${LAKE_ROWS} entries in the lake: ${name}`,
      median(values),
      `${median(values).toFixed(2)} s`,
      below(1, ' s'),
    );
  }
  await fillMonth(bench, objects, scratchDir, LAKE_ROWS - LAKE_ROWS / 5);
  const nights: number[] = [];
  for (let night = 0; night < ROUNDS; night += 1)
    nights.push(await addToMonth(bench, objects, scratchDir, 1_000));
  sayNumber(
    `1000 entries into a month of ${LAKE_ROWS}`,
    median(nights),
    `${median(nights).toFixed(2)} s`,
    atMost(NIGHT_SECONDS_MAX, ' s'),
  );
}

function showRatios(ratios: readonly number[]): string {
  const rounds = ratios.map((ratio) => ratio.toFixed(2)).join(', ');
  return `${median(ratios).toFixed(2)} (${rounds})`;
}

function sayRatios(
  what: string,
  ratios: readonly number[],
  target: Target,
): void {
  sayNumber(what, median(ratios), showRatios(ratios), target);
}

function sayPeak(
  what: string,
  peaksMb: readonly number[],
  mbMax: number,
): void {
  const peak = Math.max(...peaksMb);
  sayNumber(what, peak, `${peak.toFixed(0)} MB`, atMost(mbMax, ' MB'));
}

const isChosen = (part: string): boolean =>
  chosen.length === 0 || chosen.includes(part);
if (isChosen('copy') || isChosen('lake')) {
  const published = await publishLedger(
    pool,
    openFileStore(objectsDir),
    ROWS,
    SEGMENTS,
  );
  if (isChosen('copy')) await loading();
  if (isChosen('lake')) await parquet(published.keys);
}
if (isChosen('questions')) await questions();
